package io.twinshore.client;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.producer.ProducerRecord;

/** An example, and what tests run: {@code Load TOPIC EAST WEST RECORDS_PER_S [EAST_ID]}, until its input has a line. For
 * each record that was acknowledged it prints {@code acked PARTITION OFFSET KEY NUMBER}, for each that was refused
 * {@code refused ...}, and at the end {@code left N}. EAST_ID: the id that the cluster east must have. */
public final class Load {
    private Load() {}

    public static void main(String[] words) throws Exception {
        String topic = words[0];
        Properties east = new Properties(), west = new Properties();
        east.put("bootstrap.servers", words[1]);
        west.put("bootstrap.servers", words[2]);
        if (words.length > 4) {
            east.put("twinshore.cluster.id", words[4]);
        }
        long pause = 1_000_000_000L / Integer.parseInt(words[3]);
        var clusters = Map.of("east", east, "west", west);
        try (FailoverProducer producer = new FailoverProducer(clusters, "east", List.of(topic), "java-load")) {
            long begun = System.nanoTime();
            for (long number = 0; System.in.available() == 0; number++) {
                String key = "key-" + number % 7, value = Long.toString(number);
                var record = new ProducerRecord<>(
                    topic, key.getBytes(StandardCharsets.UTF_8), value.getBytes(StandardCharsets.UTF_8));
                producer.send(record, (at, error) -> {
                    synchronized (System.out) {
                        System.out.println(error == null
                            ? "acked " + at.partition() + " " + at.offset() + " " + key + " " + value
                            : "refused " + key + " " + value + " " + error);
                    }
                });
                while (System.nanoTime() < begun + number * pause) {
                    Thread.sleep(1);
                }
            }
            System.out.println("left " + producer.flush(Duration.ofSeconds(60)));
        }
    }
}
