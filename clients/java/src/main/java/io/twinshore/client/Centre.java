package io.twinshore.client;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Properties;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Asks the clusters where topics are at home, and tells them that this client follows: a thread for each of them, so
 * that one that is silent keeps nobody from hearing the others. */
final class Centre implements AutoCloseable {
    private static final String HOMES = "twinshore.homes", FOLLOWERS = "twinshore.followers";
    private static final int PATIENCE_MS = 1_000;
    /** Of a cluster's settings: the id without which nothing goes to it. */
    static final String CLUSTER_ID = "twinshore.cluster.id";
    /** What tells the way to a cluster: all that these connections take of the application's settings. */
    private static final List<String> WAY = List.of(
        "bootstrap.", "client.dns.", "config.providers", "security.", "ssl.", "sasl.", "socket.");

    final Following following;
    private final byte[] id;
    private final Runnable news;
    private final List<Thread> threads = new ArrayList<>();
    private volatile boolean stopping;

    Centre(Following following, Map<String, Properties> clusters, Runnable news) {
        this.following = following;
        this.news = news;
        String key = "[\"follower\",\"" + UUID.randomUUID().toString().replace("-", "") + "\"]";
        this.id = key.getBytes(StandardCharsets.UTF_8);
        clusters.forEach((cluster, settings) -> {
            if (!expected(settings).isEmpty()) {
                following.mustShow(cluster);
            }
            Thread thread = new Thread(() -> follow(cluster, settings), "twinshore asks " + cluster);
            thread.setDaemon(true);
            threads.add(thread);
        });
        threads.forEach(Thread::start);
    }

    /** Nobody waits for this client any more. */
    @Override
    public void close() {
        stopping = true;
        threads.forEach(Thread::interrupt);
        for (Thread thread : threads) {
            try {
                thread.join(4 * PATIENCE_MS);
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
                return;
            }
        }
    }

    private static String expected(Properties settings) {
        return Objects.toString(settings.get(CLUSTER_ID), "");
    }

    private void follow(String cluster, Properties settings) {
        while (!stopping) {
            try (Lines lines = new Lines(cluster, settings)) {
                while (!stopping) {
                    lines.ask();
                    news.run();
                    sleep(following.poll());
                }
                lines.goodbye();
            } catch (KafkaException | ExecutionException | TimeoutException error) {
                sleep(Following.SECOND / 4); // the lease runs on: that is what it is for
            } catch (InterruptedException error) {
                // whoever stops us has said so
            }
        }
    }

    private void sleep(long nanos) {
        try {
            TimeUnit.NANOSECONDS.sleep(nanos);
        } catch (InterruptedException error) {
            // whoever stops us has said so
        }
    }

    /** What one may not see is not absent: it throws, and the lease runs out. A list of topics leaves it out. */
    static boolean isThere(Future<?> described) throws InterruptedException, ExecutionException, TimeoutException {
        try {
            described.get(PATIENCE_MS, TimeUnit.MILLISECONDS);
            return true;
        } catch (ExecutionException error) {
            if (error.getCause() instanceof UnknownTopicOrPartitionException) {
                return false;
            }
            throw error;
        }
    }

    /** One cluster's. */
    private final class Lines implements AutoCloseable {
        private final String cluster;
        private final String expected;
        private final Admin admin;
        private final KafkaConsumer<byte[], byte[]> consumer;
        private final KafkaProducer<byte[], byte[]> producer;
        private final Map<String, HomeLine> homes = new HashMap<>();
        private final TopicPartition log = new TopicPartition(HOMES, 0);
        private boolean begun, made, isOurs;

        Lines(String cluster, Properties settings) {
            this.cluster = cluster;
            this.expected = expected(settings);
            Properties own = new Properties();
            settings.forEach((name, value) -> {
                if (WAY.stream().anyMatch(name.toString()::startsWith)) {
                    own.put(name, value);
                }
            });
            own.put("request.timeout.ms", PATIENCE_MS);
            own.put("default.api.timeout.ms", PATIENCE_MS);
            own.put("delivery.timeout.ms", PATIENCE_MS);
            own.put("linger.ms", 0);
            own.put("max.block.ms", PATIENCE_MS);
            own.put("allow.auto.create.topics", "false");
            own.put("max.partition.fetch.bytes", 1 << 20);
            own.put("fetch.max.wait.ms", 10); // where the log ends is asked behind a fetch that waits
            admin = Admin.create(own);
            consumer = new KafkaConsumer<>(own, new ByteArrayDeserializer(), new ByteArrayDeserializer());
            producer = new KafkaProducer<>(own, new ByteArraySerializer(), new ByteArraySerializer());
        }

        void ask() throws InterruptedException, ExecutionException, TimeoutException {
            String there = admin.describeCluster().clusterId().get(PATIENCE_MS, TimeUnit.MILLISECONDS);
            isOurs = expected.isEmpty() || expected.equals(there);
            if (!isOurs) {
                following.lost(cluster);
                return;
            }
            following.met(cluster, there);
            if (!made) {
                makeFollowers();
            }
            Following.Saying what = following.says(cluster, Clock.now());
            long asked = Clock.now();
            if (what != null) {
                producer.send(new ProducerRecord<>(FOLLOWERS, id, what.value())).get(PATIENCE_MS, TimeUnit.MILLISECONDS);
                following.said(cluster, what, asked, Clock.now());
                asked = Clock.now();
            }
            readHomes();
            following.read(cluster, homes.values(), asked, Clock.now());
        }

        private void makeFollowers() throws InterruptedException, ExecutionException, TimeoutException {
            var there = admin.listTopics().names().get(PATIENCE_MS, TimeUnit.MILLISECONDS);
            if (!there.contains(FOLLOWERS)) {
                NewTopic topic = new NewTopic(FOLLOWERS, java.util.Optional.of(1), java.util.Optional.empty());
                topic.configs(Map.of("cleanup.policy", "delete", "retention.ms", "3600000", "segment.ms", "600000",
                    "segment.bytes", "16777216", "max.message.bytes", "1048588"));
                try {
                    admin.createTopics(List.of(topic)).all().get(PATIENCE_MS, TimeUnit.MILLISECONDS);
                } catch (ExecutionException error) {
                    if (!(error.getCause() instanceof TopicExistsException)) {
                        throw error;
                    }
                }
            }
            made = true;
        }

        /** To where the log ends now. A topic that is not there says that there was no switch yet. */
        private void readHomes() throws InterruptedException, ExecutionException, TimeoutException {
            if (!begun) {
                if (!isThere(admin.describeTopics(List.of(HOMES)).topicNameValues().get(HOMES))) {
                    return;
                }
                consumer.assign(List.of(log));
                consumer.seekToBeginning(List.of(log));
                begun = true;
            }
            long end = consumer.endOffsets(List.of(log)).get(log);
            if (consumer.position(log) > end) { // it is another log
                homes.clear();
                consumer.seekToBeginning(List.of(log));
            }
            long until = System.nanoTime() + PATIENCE_MS * 1_000_000L;
            while (consumer.position(log) < end) {
                if (System.nanoTime() > until) {
                    throw new TimeoutException(HOMES + " cannot be read to its end");
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    take(record.key(), record.value());
                }
            }
        }

        private void take(byte[] key, byte[] value) {
            String topic = HomeLine.topicOf(key);
            if (topic == null || !following.covered(topic)) {
                return;
            }
            HomeLine line = value == null ? null : HomeLine.of(topic, value);
            HomeLine before = homes.get(topic);
            if (value == null) {
                homes.remove(topic);
            } else if (line == null || (before != null && before.isUnknown())) {
                return; // one that only a newer version can read stands until it is taken away
            } else if (line.isUnknown()) {
                homes.put(topic, line);
            } else if (!line.isFar(before, following.line(topic))) {
                // Of two lines with one word the log's first stands.
                homes.merge(topic, line, (first, now) -> now.isAbove(first) ? now : first);
            }
        }

        void goodbye() {
            Thread.interrupted();
            if (!isOurs) {
                return;
            }
            try {
                producer.send(new ProducerRecord<>(FOLLOWERS, id, null)).get(PATIENCE_MS, TimeUnit.MILLISECONDS);
            } catch (InterruptedException | ExecutionException | TimeoutException | KafkaException error) {
                // a lease runs out by itself
            }
        }

        @Override
        public void close() {
            Duration soon = Duration.ofMillis(PATIENCE_MS);
            producer.close(Duration.ZERO);
            consumer.close(org.apache.kafka.clients.consumer.CloseOptions.timeout(soon));
            admin.close(soon);
        }
    }
}
