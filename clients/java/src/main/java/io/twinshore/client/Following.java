package io.twinshore.client;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;

/**
 * What a client must do by the home lines it has read: write or read there, or park. It writes to a cluster only for as long
 * as it has read the lines there, and has said there that it follows, within its lease; both count from before it asked.
 * After a lapse it says so first and reads then: so either it hears of a switch, or the switch sees it. A client that starts
 * waits for clusters that have not answered yet, for one lease. A hold counts from when it was heard, and
 * ends by the first reading that was asked for after its time. A topic of which a cluster has a line of a newer version
 * waits while that line stands there: it is no word, and is not remembered. Times are nanoseconds of one clock.
 */
final class Following {
    /** At home on this cluster, by this line, if there is one; without a cluster the topic waits, and {@code why} says
     * for what: with a line for the switch that holds it. */
    record Order(String cluster, HomeLine line, String why) {
        boolean writes() {
            return cluster != null;
        }

        boolean held() {
            return cluster == null && line != null;
        }
    }

    /** What stands of a topic; {@code other}: what another cluster says in the same word. */
    private record Told(HomeLine line, HomeLine other) {}

    private record Word(long term, long step) {}

    /** The last word that held, and until when it counts. */
    private record Hold(HomeLine line, long until) {}

    record Saying(Map<String, Word> heard, Set<String> parked, byte[] value) {}

    /** On one cluster: when it was last told, last read, and first heard since the last lapse. */
    private static final class Lease {
        long read = NEVER, said = NEVER, visible = NEVER;

        boolean runs(long now, long lease) {
            return now < Math.min(read, said) + lease && read > visible;
        }
    }

    static final long SECOND = 1_000_000_000L;
    private static final long POLL = SECOND, SWITCH_POLL = SECOND / 20, NEVER = Long.MIN_VALUE / 4;
    private static final ObjectMapper JSON = new ObjectMapper();

    private final String name;
    private final List<String> topics;
    private final String begin;
    private final long lease;
    private final Map<String, String> clusters = new HashMap<>();
    private final Set<String> mustShow = new HashSet<>();
    private final Map<String, Told> told = new HashMap<>();
    private final Map<String, Word> parked = new HashMap<>();
    private final Map<String, Hold> holds = new HashMap<>();
    private final Map<String, Saying> last = new HashMap<>();
    private final Map<String, Long> lastAt = new HashMap<>();
    private final Map<String, Lease> leases = new HashMap<>();
    /** Topics of which a cluster has a line that cannot be read here. */
    private final Map<String, Set<String>> unread = new HashMap<>();
    private long first = NEVER, number;

    Following(String name, List<String> topics, Iterable<String> clusters, String begin, long lease) {
        clusters.forEach(cluster -> leases.put(cluster, new Lease()));
        this.name = name;
        this.topics = List.copyOf(topics);
        this.begin = begin;
        this.lease = lease;
    }

    /** Nothing is written or read on this cluster unless it has been met. */
    synchronized void mustShow(String cluster) {
        mustShow.add(cluster);
    }

    synchronized void met(String cluster, String id) {
        boolean another = clusters.containsValue(cluster) && !cluster.equals(clusters.get(id));
        clusters.values().removeIf(cluster::equals);
        clusters.put(id, cluster);
        if (another) {
            begins(cluster);
        }
    }

    /** Another cluster answers there than the one that is expected. */
    synchronized void lost(String cluster) {
        clusters.values().removeIf(cluster::equals);
        begins(cluster);
    }

    private void begins(String cluster) {
        leases.put(cluster, new Lease());
        last.remove(cluster);
        unread.remove(cluster);
    }

    /** These lines stand on that cluster, which was asked then, and had answered by {@code heard}. */
    synchronized void read(String cluster, Iterable<HomeLine> lines, long asked, long heard) {
        Set<String> unknown = new HashSet<>();
        unread.put(cluster, unknown);
        for (HomeLine one : lines) {
            if (one.isUnknown()) {
                unknown.add(one.topic());
            } else if (covered(one.topic())) {
                HomeLine line = inForce(one);
                told.merge(one.topic(), new Told(line, null), (before, now) -> higher(before, line));
                begin(told.get(one.topic()), heard);
            }
        }
        for (Map.Entry<String, Hold> one : holds.entrySet()) {
            if (one.getValue().until <= asked) {
                one.setValue(new Hold(one.getValue().line, NEVER));
                told.computeIfPresent(one.getKey(), (topic, now) -> new Told(inForce(now.line), now.other));
            }
        }
        Lease there = leases.get(cluster);
        there.read = Math.max(there.read, asked);
        first = first == NEVER ? asked : Math.min(first, asked);
    }

    private void begin(Told now, long heard) {
        Hold before = holds.get(now.line.topic());
        boolean holds = now.other == null && now.line.holdMs() > 0;
        if (holds && (before == null || now.line.isAbove(before.line))) {
            this.holds.put(now.line.topic(), new Hold(now.line, heard + now.line.holdMs() * 1_000_000));
        }
    }

    /** The line, or what it leaves behind once its hold has run out here. */
    private HomeLine inForce(HomeLine line) {
        Hold hold = holds.get(line.topic());
        boolean over = hold != null && hold.until == NEVER && hold.line.term() == line.term()
            && hold.line.step() == line.step();
        return over ? line.ended() : line;
    }

    private static Told higher(Told before, HomeLine line) {
        if (line.isAbove(before.line)) {
            return new Told(line, null);
        }
        boolean same = before.line.isAbove(line) || line.agrees(before.line);
        return same ? before : new Told(before.line, line);
    }

    boolean covered(String topic) {
        return topics.stream().anyMatch(
            one -> one.endsWith("*") ? topic.startsWith(one.substring(0, one.length() - 1)) : topic.equals(one));
    }

    /** Nothing is written to the topic, and nothing is on its way, since it was ordered to park. */
    synchronized void parked(String topic) {
        Told one = told.get(topic);
        if (one != null && one.other == null && one.line.state() == HomeLine.State.HELD) {
            parked.put(topic, new Word(one.line.term(), one.line.step()));
        }
    }

    synchronized boolean ranOut(String topic) {
        Told one = told.get(topic);
        return one != null && one.other == null && one.line.ranOut();
    }

    /** Topics that a switch holds. */
    synchronized Set<String> held() {
        Set<String> found = new HashSet<>();
        told.forEach((topic, one) -> {
            if (one.other == null && one.line.state() == HomeLine.State.HELD) {
                found.add(topic);
            }
        });
        return found;
    }

    /** What has to be said to this cluster now; null where there is no need yet. */
    synchronized Saying says(String cluster, long now) {
        Map<String, Word> heard = new LinkedHashMap<>();
        told.forEach((topic, one) -> {
            if (one.other == null && one.line.state() != HomeLine.State.SETTLED) {
                heard.put(topic, new Word(one.line.term(), one.line.step()));
            }
        });
        parked.entrySet().removeIf(one -> !one.getValue().equals(heard.get(one.getKey())));
        Set<String> parks = new TreeSet<>(parked.keySet());
        Saying before = last.get(cluster);
        boolean news = before == null || !before.heard.equals(heard) || !before.parked.equals(parks);
        if (!news && now < lastAt.get(cluster) + SECOND) {
            return null;
        }
        Map<String, Object> value = new LinkedHashMap<>();
        value.put("v", 1);
        value.put("name", name);
        value.put("topics", topics);
        Map<String, long[]> words = new LinkedHashMap<>();
        heard.forEach((topic, word) -> words.put(topic, new long[] {word.term, word.step}));
        value.put("heard", words);
        value.put("parked", parks);
        value.put("lease_ms", lease / 1_000_000);
        value.put("said", ++number);
        try {
            return new Saying(heard, parks, JSON.writeValueAsString(value).getBytes(StandardCharsets.UTF_8));
        } catch (JsonProcessingException error) {
            throw new IllegalStateException(error);
        }
    }

    /** That cluster has it: asked then, answered by now. */
    synchronized void said(String cluster, Saying what, long asked, long done) {
        Lease there = leases.get(cluster);
        if (done >= there.said + lease) {
            there.visible = done;
        }
        last.put(cluster, what);
        lastAt.put(cluster, asked);
        there.said = Math.max(there.said, asked);
    }

    /** What whoever writes must do with the topic now. */
    synchronized Order order(String topic, long now) {
        Order found = heard(topic, now);
        boolean lapsed = found.writes() && !leases.get(found.cluster).runs(now, lease);
        return lapsed ? waits(found.cluster + " was not read, or told that this client follows, within its lease") : found;
    }

    /** Whether that cluster was read by a question asked after then. */
    synchronized boolean readSince(String cluster, long then) {
        return leases.get(cluster).read > then;
    }

    /** Where the topic is at home as far as was heard, though that may be a while ago: for whoever reads, and so can do
     * no harm where it is at home no more. */
    synchronized Order heard(String topic, long now) {
        for (Map.Entry<String, Set<String>> one : unread.entrySet()) {
            if (one.getValue().contains(topic)) {
                return waits("where topic " + topic + " is at home " + one.getKey() + " says in a form of a newer version");
            }
        }
        Order found = byLines(topic);
        if (!found.writes() || leases.values().stream().allMatch(one -> one.read != NEVER)) {
            return found;
        }
        boolean early = first == NEVER || now < first + lease;
        if (early || leases.get(found.cluster).read == NEVER) {
            return waits("topic " + topic + " has no leader: a cluster that could carry it is silent");
        }
        return found;
    }

    private Order byLines(String topic) {
        Told one = told.get(topic);
        if (one == null) {
            return shown(begin, null);
        }
        if (one.other != null) {
            return waits("clusters say different things of " + topic + " in one word");
        }
        if (one.line.state() == HomeLine.State.HELD) {
            return new Order(null, one.line, "topic " + topic + " is held by a switch");
        }
        String cluster = clusters.get(one.line.clusterId());
        String why = "topic " + topic + " is at home on " + one.line.home() + ", which this client has not met";
        return cluster == null ? waits(why) : shown(cluster, one.line);
    }

    private Order shown(String cluster, HomeLine line) {
        boolean hidden = mustShow.contains(cluster) && !clusters.containsValue(cluster);
        String why = cluster + " has not shown yet that it is the cluster that is expected there";
        return hidden ? waits(why) : new Order(cluster, line, "");
    }

    private static Order waits(String why) {
        return new Order(null, null, why);
    }

    /** What stands of the topic as far as was heard; null where nothing does. */
    synchronized HomeLine line(String topic) {
        Told one = told.get(topic);
        return one == null ? null : one.line;
    }

    /** How soon the lines are read again: often while a switch is under way. */
    synchronized long poll() {
        boolean quiet = told.values().stream()
            .allMatch(one -> one.other == null && one.line.state() == HomeLine.State.SETTLED);
        return quiet ? POLL : SWITCH_POLL;
    }
}
