package io.twinshore.client;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.CloseOptions.GroupMembershipOperation;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InterruptException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A member of a consumer group that reads topics where they are at home, and reads on at the very next offset after a
 * switch. A topic and its twin hold the same records at the same offsets, so a place is a place on either cluster. When
 * a switch holds a topic this member stops reading it, commits where that is its habit, leaves the group with it, and
 * says so. At the new home it joins again, and reads on at the place that stands there, or where it stopped itself,
 * whichever lies behind. One KafkaConsumer for each cluster; one thread calls it, as it would a KafkaConsumer.
 */
public final class FailoverConsumer implements AutoCloseable {
    /** What an application does around a move; called from within {@code poll}. */
    public interface Moves {
        /** All records that were handed out of the topic count as done: whoever commits by himself does it here. */
        default void beforeMove(String topic, String from) {}

        /** From now on the topic is read on the other cluster. */
        default void afterMove(String topic, String from, String to) {}
    }

    private static final long LEASE = 5 * Following.SECOND, SLICE_MS = 50, POLL_MS_MAX = TimeUnit.DAYS.toMillis(365);
    private static final Duration PATIENCE = Duration.ofSeconds(5), PATIENCE_WITH_THE_DEAD = Duration.ofSeconds(1);

    private final Map<String, Properties> clusters;
    private final String begin;
    private final String name;
    private final Moves moves;
    private final Map<String, KafkaConsumer<byte[], byte[]>> consumers = new TreeMap<>();
    private final Map<String, Reading> readings = new TreeMap<>();
    private Centre centre;
    private int turn;

    /**
     * @param clusters settings by the application's name of each cluster, with one {@code group.id}; nothing is read on
     *     one whose id is not the {@code twinshore.cluster.id} among them, where that is given
     * @param begin where topics are read of which no cluster says where they are at home
     */
    public FailoverConsumer(Map<String, Properties> clusters, String begin, String name, Moves moves) {
        clusters.forEach((cluster, settings) -> {
            if (!settings.containsKey("group.id")) {
                throw new IllegalArgumentException(cluster + ": group.id is not set");
            }
        });
        if (!clusters.containsKey(begin)) {
            throw new IllegalArgumentException("no cluster is called " + begin);
        }
        this.clusters = Map.copyOf(clusters);
        this.begin = begin;
        this.name = name;
        this.moves = moves;
    }

    /** These topics and no others, by their names. */
    public void subscribe(Collection<String> topics) {
        topics.stream().filter(topic -> topic.endsWith("*")).forEach(topic -> {
            throw new IllegalArgumentException(topic + ": a FailoverConsumer follows topics by their names");
        });
        close();
        topics.forEach(topic -> readings.put(topic, new Reading()));
        centre = new Centre(new Following(name, List.copyOf(topics), clusters.keySet(), begin, LEASE), clusters, () -> {});
    }

    /** The next records, all of one cluster; none where there are none within the time. */
    public ConsumerRecords<byte[], byte[]> poll(Duration within) {
        if (centre == null) {
            throw new IllegalStateException(name + " has subscribed to nothing");
        }
        long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(Math.min(within.toMillis(), POLL_MS_MAX));
        while (true) {
            follow();
            long left = TimeUnit.NANOSECONDS.toMillis(until - System.nanoTime());
            ConsumerRecords<byte[], byte[]> found = read(Math.max(0, Math.min(left, SLICE_MS)));
            if (!found.isEmpty() || until - System.nanoTime() <= 0) {
                return found;
            }
        }
    }

    /** All that was handed out is done, but for topics between two homes: their places count at the new one. */
    public void commitSync() {
        consumers.values().forEach(KafkaConsumer::commitSync);
    }

    /** These places are; what is said of a topic between two homes counts nowhere. */
    public void commitSync(Map<TopicPartition, OffsetAndMetadata> places) {
        consumers.forEach((cluster, consumer) -> {
            Map<TopicPartition, OffsetAndMetadata> here = new HashMap<>(places);
            here.keySet().removeIf(partition -> !isAt(cluster, partition.topic()));
            if (!here.isEmpty()) {
                consumer.commitSync(here);
            }
        });
    }

    /** Where the topic is read now, or why it waits. */
    public String where(String topic) {
        Reading reading = readings.get(topic);
        if (reading == null || centre == null) {
            return "it is not subscribed to";
        }
        Following.Order order = centre.following.heard(topic, Clock.now());
        return reading.at != null ? reading.at : order.writes() ? "about to be read on " + order.cluster() : order.why();
    }

    /** How often the topic has changed homes, with the one that it is read on now; 0 while it waits. A place that the
     * application keeps itself is kept with it. */
    public long term(String topic) {
        Reading reading = readings.get(topic);
        return reading == null || reading.at == null ? 0 : reading.term;
    }

    /** Commits where that is its habit, leaves the group, and says goodbye. */
    @Override
    public void close() {
        try {
            consumers.values().forEach(consumer -> end(consumer, CloseOptions.timeout(PATIENCE)));
        } finally {
            consumers.clear();
            readings.clear();
            if (centre != null) {
                centre.close();
                centre = null;
            }
        }
    }

    /** Leaves what a switch holds, and joins where topics are at home. */
    private void follow() {
        Map<String, Following.Order> orders = new TreeMap<>();
        readings.keySet().forEach(topic -> orders.put(topic, centre.following.heard(topic, Clock.now())));
        // By one look at each: what is parked by a word that has come since is not joined by the one before.
        Set<String> held = new HashSet<>(orders.keySet());
        held.removeIf(topic -> !orders.get(topic).held());
        List<String> leaves = new ArrayList<>(orders.keySet());
        leaves.removeIf(topic -> isAt(orders.get(topic).cluster(), topic) || readings.get(topic).at == null);
        leave(leaves, held);
        for (String topic : held) {
            if (readings.get(topic).at == null && consumers.keySet().stream().noneMatch(one -> isDealt(one, topic))) {
                centre.following.parked(topic);
            }
        }
        join(orders);
    }

    private void leave(List<String> topics, Set<String> held) {
        topics.forEach(topic -> moves.beforeMove(topic, readings.get(topic).at));
        Set<String> homes = new HashSet<>();
        for (String topic : topics) {
            homes.add(readings.get(topic).at);
            readings.get(topic).leave();
        }
        // A home that died takes no place any more, and is left all the same: this member knows how far it has read.
        Duration patience = held.containsAll(topics) ? PATIENCE : PATIENCE_WITH_THE_DEAD;
        for (String home : homes) {
            KafkaConsumer<byte[], byte[]> consumer = consumers.get(home);
            if (topicsAt(home).isEmpty()) {
                consumers.remove(home);
                end(consumer, CloseOptions.timeout(patience)
                    .withGroupMembershipOperation(GroupMembershipOperation.LEAVE_GROUP));
            } else {
                leaveSome(home, consumer, patience);
            }
        }
    }

    /** Other topics stay: those that leave are read no more at once, and are dealt anew with the next turns. */
    private void leaveSome(String home, KafkaConsumer<byte[], byte[]> consumer, Duration patience) {
        consumer.pause(consumer.assignment().stream().filter(one -> !isAt(home, one.topic())).toList());
        if (!"false".equalsIgnoreCase(String.valueOf(clusters.get(home).get("enable.auto.commit")))) {
            try {
                consumer.commitSync(patience);
            } catch (KafkaException error) {
                // as of a home that died
            }
        }
        subscribe(home);
    }

    /** It commits by itself, where that is its habit. */
    private static void end(KafkaConsumer<byte[], byte[]> consumer, CloseOptions how) {
        try {
            consumer.close(how);
        } catch (KafkaException error) {
            // it is closed all the same
        }
    }

    private void join(Map<String, Following.Order> orders) {
        List<String> joined = new ArrayList<>();
        orders.forEach((topic, order) -> {
            Reading reading = readings.get(topic);
            // What is left on the same cluster is dealt anew first.
            if (reading.at != null || !order.writes() || isDealt(order.cluster(), topic)) {
                return;
            }
            consumers.computeIfAbsent(order.cluster(), this::consumer);
            reading.arrive(order.cluster(), order.line());
            joined.add(topic);
        });
        joined.stream().map(topic -> readings.get(topic).at).distinct().forEach(this::subscribe);
        for (String topic : joined) {
            Reading reading = readings.get(topic);
            String from = reading.left;
            reading.left = null;
            if (from != null && !from.equals(reading.at)) {
                moves.afterMove(topic, from, reading.at);
            }
        }
    }

    private KafkaConsumer<byte[], byte[]> consumer(String cluster) {
        Properties settings = new Properties();
        settings.put("allow.auto.create.topics", "false");
        settings.put("fetch.max.wait.ms", 100); // whoever leaves waits for a fetch that is on its way
        settings.putAll(clusters.get(cluster));
        settings.remove(Centre.CLUSTER_ID);
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private void subscribe(String cluster) {
        consumers.get(cluster).subscribe(topicsAt(cluster), new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                Reading.dealt(consumers.get(cluster), readings, ours(partitions));
            }

            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                // Another member may read on there: how far this one came says nothing any more.
                ours(partitions).forEach(one -> readings.get(one.topic()).handed.remove(one.partition()));
            }

            private List<TopicPartition> ours(Collection<TopicPartition> partitions) {
                return partitions.stream().filter(one -> isAt(cluster, one.topic())).toList();
            }
        });
    }

    /** By turns, where topics are read on several clusters. */
    private ConsumerRecords<byte[], byte[]> read(long millis) {
        if (consumers.isEmpty()) {
            try {
                Thread.sleep(millis);
            } catch (InterruptedException error) {
                throw new InterruptException(error);
            }
        }
        List<KafkaConsumer<byte[], byte[]>> every = List.copyOf(consumers.values());
        for (int step = every.size() - 1; step >= 0; step--) {
            turn = (turn + 1) % every.size();
            var found = every.get(turn).poll(Duration.ofMillis(step == 0 ? millis : 0));
            for (TopicPartition one : found.partitions()) {
                var some = found.records(one);
                readings.get(one.topic()).handed.put(one.partition(), some.get(some.size() - 1).offset() + 1);
            }
            if (!found.isEmpty()) {
                return found;
            }
        }
        return ConsumerRecords.empty();
    }

    private boolean isAt(String cluster, String topic) {
        Reading reading = readings.get(topic);
        return reading != null && reading.at != null && reading.at.equals(cluster);
    }

    private List<String> topicsAt(String cluster) {
        return readings.keySet().stream().filter(topic -> isAt(cluster, topic)).toList();
    }

    private boolean isDealt(String cluster, String topic) {
        KafkaConsumer<byte[], byte[]> consumer = consumers.get(cluster);
        return consumer != null && consumer.assignment().stream().anyMatch(one -> one.topic().equals(topic));
    }
}
