package io.twinshore.client;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;

/** An example, and what tests run: {@code Read TOPIC[,TOPIC...] GROUP EAST WEST}, until its input has a line. For
 * each record it prints {@code read CLUSTER PARTITION OFFSET KEY NUMBER}, for each move {@code moved FROM TO}, and
 * {@code done} at the end. */
public final class Read {
    private Read() {}

    public static void main(String[] words) throws Exception {
        Properties east = settings(words[1], words[2]), west = settings(words[1], words[3]);
        FailoverConsumer.Moves moves = new FailoverConsumer.Moves() {
            @Override
            public void afterMove(String moved, String from, String to) {
                System.out.println("moved " + from + " " + to);
            }
        };
        try (FailoverConsumer consumer = new FailoverConsumer(Map.of("east", east, "west", west), "east", "java-read", moves)) {
            consumer.subscribe(List.of(words[0].split(",")));
            while (System.in.available() == 0) {
                for (ConsumerRecord<byte[], byte[]> one : consumer.poll(Duration.ofMillis(200))) {
                    System.out.println("read " + consumer.where(one.topic()) + " " + one.partition() + " "
                        + one.offset() + " " + text(one.key()) + " " + text(one.value()));
                }
            }
        }
        System.out.println("done");
    }

    private static String text(byte[] bytes) {
        return bytes == null ? "-" : new String(bytes, StandardCharsets.UTF_8);
    }

    private static Properties settings(String group, String servers) {
        Properties found = new Properties();
        found.put("bootstrap.servers", servers);
        found.put("group.id", group);
        found.put("auto.offset.reset", "earliest");
        return found;
    }
}
