package io.twinshore.client;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Pattern;

/** Where a topic is at home, as a line of {@code twinshore.homes} says. Compared by its word: the term, then the step.
 * {@code points}: for each partition, the offset at which the topic came to this home. {@code holdMs}: for how long a
 * line that holds counts, from when it is heard; 0 until another word comes. {@code UNKNOWN}: a newer version wrote the
 * line in a form that cannot be read here. So the topic has a home, and nobody here knows which: never none. */
record HomeLine(
    String topic, String home, String clusterId, long term, long step, State state, List<Long> points, long holdMs) {
    enum State { SETTLED, ANNOUNCED, HELD, UNKNOWN }

    private static final Pattern TOPIC = Pattern.compile("[a-zA-Z0-9._-]{1,249}");
    private static final int BYTES_MAX = 1 << 19, PARTITIONS_MAX = 20_000, HOLD_MS_MAX = 86_400_000;
    /** Of the lines that are read here; a line that names none is of this one. */
    private static final int VERSION = 1;
    private static final ObjectMapper JSON = new ObjectMapper();

    /** Whether a hold ended by time alone: rules of its switch may keep writers out until somebody ends that. */
    boolean ranOut() {
        return state == State.SETTLED && holdMs > 0;
    }

    /** What a line that held leaves behind once its hold has run out. */
    HomeLine ended() {
        return new HomeLine(topic, home, clusterId, term, step, State.SETTLED, points, holdMs);
    }

    /** Whether both say the same. Mirrors may call the cluster differently. */
    boolean agrees(HomeLine other) {
        return equals(new HomeLine(
            other.topic, home, other.clusterId, other.term, other.step, other.state, other.points, other.holdMs));
    }

    boolean isUnknown() {
        return state == State.UNKNOWN;
    }

    boolean isAbove(HomeLine other) {
        return term != other.term ? term > other.term : step > other.step;
    }

    /** Whether the line is further above all that is known of its topic than any switch would write it: what stands
     * before it in the log ({@code there}), and what was heard of it. */
    boolean isFar(HomeLine there, HomeLine heard) {
        HomeLine known = there == null || (heard != null && heard.isAbove(there)) ? heard : there;
        long above = known == null ? 0 : known.term, steps = known != null && known.term == term ? known.step : 0;
        return term > above + 1_000 || step > steps + (1 << 20);
    }

    /** The topic that a key names; null where it is the key of another line. */
    static String topicOf(byte[] key) {
        JsonNode said = json(key);
        if (said == null || !said.isArray() || said.size() != 2 || !"home".equals(said.get(0).textValue())) {
            return null;
        }
        String topic = said.get(1).textValue();
        return topic != null && TOPIC.matcher(topic).matches() ? topic : null;
    }

    /** The line; null where it is none, as strangers may write to the topic. */
    static HomeLine of(String topic, byte[] value) {
        JsonNode said = json(value);
        if (said == null || !said.isObject()) {
            return null;
        }
        int version = versionOf(said);
        if (version != VERSION) {
            return version < VERSION ? null : new HomeLine(topic, "", "", 0, 0, State.UNKNOWN, List.of(), 0);
        }
        String home = said.path("home").textValue(), id = said.path("cluster_id").textValue();
        JsonNode term = said.path("term"), step = said.path("step");
        State state = stateOf(said.path("state").textValue());
        if (home == null || home.isEmpty() || id == null || id.isEmpty() || state == null) {
            return null;
        }
        List<Long> points = pointsOf(said.path("points"));
        boolean sound = isNumber(term) && term.longValue() > 0 && isNumber(step) && points != null;
        JsonNode hold = said.path("hold_ms");
        long holdMs = isNumber(hold) && hold.longValue() <= HOLD_MS_MAX ? hold.longValue() : 0;
        return sound ? new HomeLine(topic, home, id, term.longValue(), step.longValue(), state, points, holdMs) : null;
    }

    /** 0 where it is none. Of a newer one nothing else is looked at. */
    private static int versionOf(JsonNode said) {
        JsonNode version = said.path("v");
        boolean sound = version.isIntegralNumber() && version.canConvertToInt() && version.intValue() > 0;
        return version.isMissingNode() ? VERSION : sound ? version.intValue() : 0;
    }

    /** A list of two is a count and the point of so many partitions; null where one is neither. */
    private static List<Long> pointsOf(JsonNode said) {
        List<Long> found = new ArrayList<>();
        for (JsonNode one : said) {
            boolean isRun = one.isArray() && one.size() == 2 && isNumber(one.get(0));
            long count = isRun ? one.get(0).longValue() : 1;
            JsonNode point = isRun ? one.get(1) : one;
            if (!isNumber(point) || count < 1 || count > PARTITIONS_MAX - found.size()) {
                return null;
            }
            for (long number = 0; number < count; number++) {
                found.add(point.longValue());
            }
        }
        return said.isArray() ? List.copyOf(found) : null;
    }

    private static boolean isNumber(JsonNode said) {
        return said.isIntegralNumber() && said.canConvertToLong() && said.longValue() >= 0;
    }

    private static State stateOf(String word) {
        for (State state : State.values()) {
            if (state != State.UNKNOWN && state.name().toLowerCase(java.util.Locale.ROOT).equals(word)) {
                return state;
            }
        }
        return null;
    }

    private static JsonNode json(byte[] text) {
        if (text == null || text.length > BYTES_MAX) {
            return null;
        }
        try {
            return JSON.readTree(text);
        } catch (IOException | StackOverflowError error) {
            return null;
        }
    }
}
