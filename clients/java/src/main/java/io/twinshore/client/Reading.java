package io.twinshore.client;

import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;

/** One topic as a FailoverConsumer reads it: where ({@code at}; null between two homes), in which term, and how far its
 * records were handed out to the application, by partition. */
final class Reading {
    private static final Duration PATIENCE = Duration.ofSeconds(5);

    String at, left;
    long term;
    final Map<Integer, Long> handed = new HashMap<>();
    /** How far they were handed out at the home before, as this one counts, until partitions are dealt here. */
    private final Map<Integer, Long> carried = new HashMap<>();

    void leave() {
        carried.putAll(handed);
        handed.clear();
        left = at;
        at = null;
    }

    /** By this line; null: no line tells of the topic. */
    void arrive(String cluster, HomeLine line) {
        long now = line == null ? 1 : line.term();
        Map<Integer, Long> places = since(carried, term, now, line);
        carried.clear();
        carried.putAll(places);
        term = now;
        at = cluster;
    }

    /** These places, kept in the term {@code was}, as the home of term {@code now} counts: behind the point at which
     * the topic came there other records have these offsets. Without those of which nobody knows. */
    static Map<Integer, Long> since(Map<Integer, Long> places, long was, long now, HomeLine line) {
        List<Long> points = line != null && was + 1 == now ? line.points() : List.of();
        Map<Integer, Long> found = new HashMap<>();
        places.forEach((partition, place) -> {
            if (was == now || partition < points.size()) {
                found.put(partition, was == now ? place : Math.min(place, points.get(partition)));
            }
        });
        return found;
    }

    /** Partitions are dealt to this member. Right behind a move, where the group's place lies before what this member
     * has handed out, it reads on behind that, also if the topic moves on before it has read anything. At any later time
     * the group's place alone counts, as for every consumer. */
    static void dealt(
            Consumer<?, ?> consumer, Map<String, Reading> readings, Collection<TopicPartition> partitions) {
        Map<TopicPartition, Long> mine = new HashMap<>();
        for (TopicPartition one : partitions) {
            Long place = readings.get(one.topic()).carried.get(one.partition());
            if (place != null) {
                mine.put(one, place);
            }
        }
        partitions.forEach(one -> readings.get(one.topic()).carried.clear());
        Map<TopicPartition, OffsetAndMetadata> groups = Map.of();
        try {
            groups = mine.isEmpty() ? groups : consumer.committed(mine.keySet(), PATIENCE);
        } catch (TimeoutException error) {
            // what this member has handed out it hands out no second time
        }
        for (Map.Entry<TopicPartition, Long> one : mine.entrySet()) {
            OffsetAndMetadata place = groups.get(one.getKey());
            readings.get(one.getKey().topic()).handed.put(one.getKey().partition(), one.getValue());
            if (place == null || place.offset() < one.getValue()) {
                consumer.seek(one.getKey(), one.getValue());
            }
        }
    }
}
