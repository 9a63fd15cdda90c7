package io.twinshore.client;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.MockConsumer;
import org.apache.kafka.clients.producer.ProducerInterceptor;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.LeaderNotAvailableException;
import org.apache.kafka.common.errors.TopicAuthorizationException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

/** What a client in Java makes of what it hears, without a broker: a line for each, for the test to read. */
public final class Checks {
    private static final HomeLine.State SETTLED = HomeLine.State.SETTLED, HELD = HomeLine.State.HELD;
    private static final HomeLine NEWER = HomeLine.of("orders", "{\"v\":2}".getBytes(StandardCharsets.UTF_8));
    private static long nanos, wallMs;

    public static void main(String[] words) throws Exception {
        said("there", isThere(null));
        said("absent", isThere(new UnknownTopicOrPartitionException("")));
        said("hidden", isThere(new TopicAuthorizationException("")));
        said("no leader", isThere(new LeaderNotAvailableException("")));
        oneLook();
        holdEnds();
        orders(words[0]);
        lines(words[1]);
        clock();
        handedOutBefore();
        producerInTrouble();
        errorsInItsThread();
    }

    private static void said(String what, Object found) {
        System.out.println(what + ": " + found);
    }

    private static String isThere(KafkaException error) throws Exception {
        CompletableFuture<String> described = new CompletableFuture<>();
        if (error == null) {
            described.complete("");
        } else {
            described.completeExceptionally(error);
        }
        try {
            return String.valueOf(Centre.isThere(described));
        } catch (ExecutionException thrown) {
            return "throws";
        }
    }

    private static HomeLine line(String home, long term, long step, HomeLine.State state, Long... points) {
        return new HomeLine("orders", home, home, term, step, state, List.of(points), state == HELD ? 3_000 : 0);
    }

    /** An order of before says nothing of what came since. */
    private static void oneLook() {
        Following following = new Following("", List.of("orders"), List.of("east"), "east", 5 * Following.SECOND);
        following.met("east", "east");
        following.read("east", List.of(line("east", 1, 0, SETTLED)), 1, 1);
        Following.Order before = following.heard("orders", 0);
        following.read("east", List.of(line("east", 1, 1, HELD)), 2, 2);
        Following.Order since = following.heard("orders", 0);
        said("before", "writes " + before.writes() + ", held " + before.held());
        said("since", "writes " + since.writes() + ", held " + since.held());
        following.met("east", "another");
        following.read("east", List.of(line("east", 1, 2, SETTLED)), 3, 3);
        said("unknown", "held " + following.heard("orders", 0).held());
    }

    /** It counts from when it was heard, and ends by a reading that was asked for after its time. */
    private static void holdEnds() {
        Following following = new Following("", List.of("orders"), List.of("east"), "east", 5 * Following.SECOND);
        following.met("east", "east");
        List<HomeLine> held = List.of(line("east", 1, 1, HELD));
        following.read("east", held, 1, Following.SECOND);
        following.read("east", held, 4 * Following.SECOND - 1, 9 * Following.SECOND);
        said("in the hold", "held " + following.heard("orders", 0).held());
        following.read("east", held, 4 * Following.SECOND, 9 * Following.SECOND);
        following.read("east", held, 2 * Following.SECOND, 9 * Following.SECOND);
        said("behind it", "writes " + following.heard("orders", 0).writes() + ", held " + following.held());
        following.read("east", List.of(line("east", 1, 2, HELD)), 5 * Following.SECOND, 5 * Following.SECOND);
        said("held again", "held " + following.heard("orders", 0).held());
    }

    /** The cases that the clients of each language play. */
    private static void orders(String file) throws Exception {
        JsonNode played = new ObjectMapper().readTree(Path.of(file).toFile());
        for (JsonNode one : played.get("cases")) {
            List<String> clusters = new ArrayList<>();
            one.get("clusters").forEach(cluster -> clusters.add(cluster.asText()));
            Following following = new Following("", List.of("orders"), clusters, played.get("begin").asText(),
                nanos(played.get("lease_s")));
            for (JsonNode asked : one.get("asked")) {
                String cluster = asked.get(0).asText();
                long at = nanos(asked.get(1));
                following.met(cluster, cluster);
                following.said(cluster, following.says(cluster, at), at, at);
                JsonNode told = asked.get(2);
                List<HomeLine> lines = told.isNull() ? List.of() : told.isTextual() ? List.of(NEWER)
                    : List.of(line(told.get(0).asText(), told.get(1).asLong(), 0, SETTLED));
                following.read(cluster, lines, at + 10_000_000, at + 10_000_000);
            }
            Following.Order order = following.order("orders", nanos(one.get("at_s")));
            said(one.get("name").asText(), order.writes() ? order.cluster() : "-");
        }
    }

    /** What the readers of each language make of these lines. */
    private static void lines(String file) throws Exception {
        for (JsonNode one : new ObjectMapper().readTree(Path.of(file).toFile())) {
            String key = one.get("key").asText(), value = one.get("value").asText();
            String topic = HomeLine.topicOf(key.getBytes(StandardCharsets.UTF_8));
            HomeLine line = topic == null ? null : HomeLine.of(topic, value.getBytes(StandardCharsets.UTF_8));
            String read = line == null ? "none" : line.isUnknown() ? "unknown"
                : topic + " on " + line.home() + " " + line.clusterId() + " " + line.term() + "." + line.step() + " "
                    + line.state().name().toLowerCase(Locale.ROOT) + " " + line.points() + " " + line.holdMs();
            said("line, " + one.get("name").asText(), read);
        }
        Following following = new Following("shop", List.of("orders"), List.of("east"), "east", 5 * Following.SECOND);
        said("follower", new String(following.says("east", 0).value(), StandardCharsets.UTF_8));
    }

    private static long nanos(JsonNode seconds) {
        return (long) (seconds.asDouble() * Following.SECOND);
    }

    private static void clock() {
        Clock clock = new Clock(() -> nanos, () -> wallMs);
        for (int step = 0; step < 3_000; step++) {
            goes(1_000_000, step % 3 == 0 ? 2 : step % 3 == 1 ? 0 : 1);
            clock.read();
        }
        said("awake", clock.read() - nanos);
        goes(0, 7_000);
        said("slept", TimeUnit.NANOSECONDS.toMillis(clock.read() - nanos));
        goes(0, -3_600_000);
        said("set back", TimeUnit.NANOSECONDS.toMillis(clock.read() - nanos));
        goes(0, 5_000);
        said("slept again", TimeUnit.NANOSECONDS.toMillis(clock.read() - nanos));
    }

    /** Of two moves with nothing read between them: as there, then by force to a point before that. */
    private static void handedOutBefore() {
        Reading reading = new Reading();
        TopicPartition one = new TopicPartition("orders", 0);
        reading.arrive("east", line("east", 1, 0, SETTLED));
        reading.handed.put(0, 50L);
        for (HomeLine to : List.of(line("west", 2, 0, SETTLED, 60L), line("east", 3, 0, SETTLED, 40L))) {
            reading.leave();
            reading.arrive(to.home(), to);
            try (MockConsumer<byte[], byte[]> consumer = new MockConsumer<>("earliest")) {
                consumer.assign(List.of(one));
                consumer.updateBeginningOffsets(Map.of(one, 0L));
                Reading.dealt(consumer, Map.of("orders", reading), List.of(one));
                said(to.home(), "reads on at " + consumer.position(one));
            }
        }
    }

    /** No KafkaProducer can be made; it is closed with records that it keeps, and the first one's callback throws. */
    private static void producerInTrouble() throws Exception {
        Properties east = new Properties();
        east.put("bootstrap.servers", "127.0.0.1:1");
        east.put("linger.ms", "soon");
        east.put("delivery.timeout.ms", "1000");
        east.put("retries", "1");
        FailoverProducer producer = new FailoverProducer(Map.of("east", east), "east", List.of("orders"), "shop");
        said("given up after", producer.settings("east").get("delivery.timeout.ms"));
        said("tried again", producer.settings("east").get("retries"));
        settled(producer);
        List<String> heard = new ArrayList<>();
        for (String value : List.of("one", "two")) {
            producer.send(new ProducerRecord<>("orders", null, value.getBytes()), (at, error) -> {
                heard.add(value + " " + (error != null));
                throw new IllegalStateException(value);
            });
        }
        Thread.sleep(200);
        said("in trouble", producer.where("orders").replace(": ", ", "));
        said("runs on", Thread.getAllStackTraces().keySet().stream().anyMatch(one -> one.getName().equals("twinshore shop")));
        producer.close(Duration.ZERO);
        said("closed", heard);
    }

    /** What a KafkaProducer calls throws an Error, and a callback too, in the thread that sends what was kept. */
    private static void errorsInItsThread() throws Exception {
        Properties east = new Properties();
        east.put("bootstrap.servers", "127.0.0.1:1");
        east.put("interceptor.classes", Raises.class.getName());
        FailoverProducer producer = new FailoverProducer(Map.of("east", east), "east", List.of("orders"), "till");
        List<String> heard = Collections.synchronizedList(new ArrayList<>());
        for (String value : List.of("one", "two")) {
            producer.send(new ProducerRecord<>("orders", null, value.getBytes()), (at, error) -> {
                heard.add(value + " by " + Thread.currentThread().getName());
                throw new AssertionError(value);
            });
        }
        settled(producer);
        said("left", producer.flush(Duration.ofSeconds(5)));
        said("errors", heard);
        producer.close(Duration.ZERO);
    }

    private static void settled(FailoverProducer producer) {
        Following following = producer.centre.following;
        long now = Clock.now();
        following.met("east", "east");
        following.said("east", following.says("east", now), now, now);
        following.read("east", List.of(line("east", 1, 0, SETTLED)), Clock.now(), Clock.now());
    }

    /** Of an application. */
    public static final class Raises implements ProducerInterceptor<byte[], byte[]> {
        @Override
        public ProducerRecord<byte[], byte[]> onSend(ProducerRecord<byte[], byte[]> record) {
            throw new AssertionError("interceptor");
        }

        @Override
        public void onAcknowledgement(RecordMetadata metadata, Exception error) {}

        @Override
        public void configure(Map<String, ?> settings) {}

        @Override
        public void close() {}
    }

    private static void goes(long someNanos, long someMs) {
        nanos += someNanos;
        wallMs += someMs;
    }
}
