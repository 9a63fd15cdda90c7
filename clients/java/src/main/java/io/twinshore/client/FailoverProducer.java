package io.twinshore.client;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * A producer whose topics may move to another cluster, planned or by force, while it writes. Records of a topic are sent
 * where it is at home; while a switch holds it they are kept, in order. What a home that died has not acknowledged is
 * sent again at the new one. One KafkaProducer for each topic and cluster, so that what becomes of one topic touches no
 * other.
 */
public final class FailoverProducer implements AutoCloseable {
    /** How many records may be kept or on their way. */
    public static final int WAITING_MAX = 100_000;
    private static final long LEASE = 5 * Following.SECOND;
    private static final long TURN_MS = 20;
    private static final System.Logger LOG = System.getLogger(FailoverProducer.class.getName());

    private record Call(long number, ProducerRecord<byte[], byte[]> record, Callback told) {}

    /** A switch says that it holds a topic before its rules keep writers out: so such a refusal counts once the
     * cluster was read behind it. {@code amid}: a hold has run out, so the rules may be a switch's still. */
    private record Refused(Call call, Exception why, long heard, boolean amid) {}

    /** One topic: what is kept, and what is on its way to {@code at}, each in order. While something is refused nothing
     * more is sent. */
    private static final class Lane {
        final List<Refused> refused = new ArrayList<>();
        final TreeMap<Long, Call> kept = new TreeMap<>(), sent = new TreeMap<>();
        String at;
        KafkaProducer<byte[], byte[]> producer;
        boolean leaving;
        String trouble = "";
    }

    private final Map<String, Properties> clusters;
    final Centre centre;
    private final Map<String, Lane> lanes = new HashMap<>();
    private final Thread thread;
    private long number;
    private int waiting;
    private volatile boolean stopping;

    /**
     * @param clusters settings by the application's name of each cluster; nothing goes to one whose id is not the
     *     {@code twinshore.cluster.id} among them, where that is given
     * @param begin where topics are written of which no cluster says where they are at home
     * @param topics what may be written: names, or beginnings of names with a * behind; a switch waits for whoever may
     *     write its topics
     */
    public FailoverProducer(Map<String, Properties> clusters, String begin, List<String> topics, String name) {
        clusters.forEach((cluster, settings) -> {
            if (settings.containsKey("transactional.id")) {
                throw new IllegalArgumentException(cluster + ": transactions are not written by a FailoverProducer");
            }
        });
        if (!clusters.containsKey(begin)) {
            throw new IllegalArgumentException("no cluster is called " + begin);
        }
        this.clusters = Map.copyOf(clusters);
        this.centre = new Centre(new Following(name, topics, clusters.keySet(), begin, LEASE), clusters, this::wake);
        this.thread = new Thread(this::run, "twinshore " + name);
        thread.setDaemon(true);
        thread.start();
    }

    /** Returns once the record is taken; {@code told} hears what became of it. Waits while too many are on their way. */
    public synchronized void send(ProducerRecord<byte[], byte[]> record, Callback told) throws InterruptedException {
        while (waiting >= WAITING_MAX && !stopping) {
            wait();
        }
        if (stopping) {
            throw new IllegalStateException("the producer is closed");
        }
        Lane lane = lanes.computeIfAbsent(record.topic(), topic -> new Lane());
        // The time of the call, also where it is sent later.
        Long at = record.timestamp() != null ? record.timestamp() : Long.valueOf(System.currentTimeMillis());
        var whole = new ProducerRecord<>(
            record.topic(), record.partition(), at, record.key(), record.value(), record.headers());
        Call call = new Call(number++, whole, told);
        waiting++;
        lane.kept.put(call.number, call);
        if (lane.kept.size() == 1) {
            go(record.topic(), lane);
        }
    }

    /** Waits for all that was sent; how many are left then. */
    public synchronized int flush(Duration within) throws InterruptedException {
        long until = System.nanoTime() + within.toNanos();
        long left;
        while (waiting > 0 && (left = (until - System.nanoTime()) / 1_000_000) > 0) {
            wait(Math.min(left, 100));
        }
        return waiting;
    }

    /** Where the topic is written now, or why it waits. */
    public synchronized String where(String topic) {
        Lane lane = lanes.get(topic);
        if (lane != null && !lane.trouble.isEmpty()) {
            return lane.trouble;
        }
        Following.Order order = centre.following.order(topic, Clock.now());
        return order.writes() ? order.cluster() : order.why();
    }

    @Override
    public void close() {
        close(Duration.ofSeconds(30));
    }

    /** Waits for all that was sent, for so long at most. What is left then hears that it was not acknowledged. */
    public void close(Duration within) {
        try {
            flush(within);
            stopping = true;
            thread.interrupt();
            thread.join();
        } catch (InterruptedException error) {
            stopping = true;
            Thread.currentThread().interrupt();
        }
        List<KafkaProducer<byte[], byte[]>> open = new ArrayList<>();
        List<Refused> refused = new ArrayList<>();
        List<Call> kept = new ArrayList<>();
        synchronized (this) {
            stopping = true;
            lanes.values().forEach(lane -> {
                refused.addAll(lane.refused);
                lane.refused.clear();
                kept.addAll(lane.kept.values());
                lane.kept.clear();
            });
            lanes.values().stream().filter(lane -> lane.producer != null).forEach(lane -> open.add(lane.producer));
        }
        refused.forEach(one -> tell(one.call, null, one.why));
        kept.forEach(one -> tell(one, null, new KafkaException("the producer was closed before that was acknowledged")));
        open.forEach(FailoverProducer::end);
        centre.close();
    }

    private synchronized void wake() {
        notifyAll();
    }

    private void run() {
        while (!stopping) {
            going("what moves records", this::step);
            synchronized (this) {
                try {
                    wait(TURN_MS);
                } catch (InterruptedException error) {
                    return;
                }
            }
        }
    }

    private void step() {
        List<KafkaProducer<byte[], byte[]>> left;
        List<Refused> refused = new ArrayList<>();
        synchronized (this) {
            lanes.forEach((topic, lane) -> judge(topic, lane, refused));
            left = turn();
        }
        refused.forEach(one -> tell(one.call, null, one.why));
        left.forEach(FailoverProducer::end);
    }

    /** Its callbacks come from here or from its own thread, and take what was not acknowledged back. */
    private static void end(KafkaProducer<byte[], byte[]> producer) {
        going("the end of a KafkaProducer", () -> producer.close(Duration.ZERO));
    }

    /** Whatever it throws is logged: nothing else would end with it. */
    private static void going(String what, Runnable does) {
        try {
            does.run();
        } catch (Throwable raised) {
            LOG.log(System.Logger.Level.WARNING, what + " throws", raised);
        }
    }

    /** Those that are left behind at homes that are none any more. */
    private List<KafkaProducer<byte[], byte[]>> turn() {
        List<KafkaProducer<byte[], byte[]>> left = new ArrayList<>();
        for (String topic : centre.following.held()) {
            Lane lane = lanes.get(topic);
            if (lane == null || lane.sent.isEmpty()) {
                centre.following.parked(topic);
            }
        }
        lanes.forEach((topic, lane) -> {
            Following.Order order = centre.following.order(topic, Clock.now());
            boolean moved = order.writes() && lane.at != null && !order.cluster().equals(lane.at);
            if (moved && !lane.leaving) {
                lane.leaving = true;
                left.add(lane.producer);
            }
            if (moved && lane.sent.isEmpty()) {
                lane.at = null;
                lane.producer = null;
                lane.leaving = false;
            }
            go(topic, lane);
        });
        return left;
    }

    /** What was refused is kept where its topic is held or at home elsewhere by now; else it is refused for good. */
    private void judge(String topic, Lane lane, List<Refused> found) {
        if (lane.refused.isEmpty()) {
            return;
        }
        Following.Order order = centre.following.order(topic, Clock.now());
        boolean atHome = order.writes() && order.cluster().equals(lane.at) && !lane.leaving;
        long last = lane.refused.get(lane.refused.size() - 1).heard;
        if (atHome && (!centre.following.readSince(lane.at, last) || centre.following.ranOut(topic))) {
            return;
        }
        for (Refused one : lane.refused) {
            if (atHome && !one.amid) {
                found.add(one);
            } else {
                lane.kept.put(one.call.number, one.call);
            }
        }
        lane.refused.clear();
    }

    /** Sends what is kept, if the topic may be written now. */
    private void go(String topic, Lane lane) {
        while (!lane.kept.isEmpty() && !lane.leaving && lane.refused.isEmpty()) {
            Following.Order order = centre.following.order(topic, Clock.now());
            if (!order.writes() || (lane.at != null && !lane.at.equals(order.cluster()))) {
                return;
            }
            if (lane.at == null) {
                try {
                    lane.producer = new KafkaProducer<>(
                        settings(order.cluster()), new ByteArraySerializer(), new ByteArraySerializer());
                } catch (KafkaException error) {
                    trouble(lane, "no producer can be made for " + order.cluster() + ": " + error.getMessage(), error);
                    return; // the next turn tries again
                }
                lane.at = order.cluster();
                lane.trouble = "";
            }
            Call call = lane.kept.pollFirstEntry().getValue();
            lane.sent.put(call.number, call);
            KafkaProducer<byte[], byte[]> by = lane.producer;
            try {
                by.send(call.record, (metadata, error) -> heard(topic, lane, by, call, metadata, error));
            } catch (Throwable error) {
                heard(topic, lane, by, call, null, error instanceof Exception known ? known : new KafkaException(error));
            }
            if (lane.kept.containsKey(call.number)) {
                return; // it came back at once: the next turn tries again
            }
        }
    }

    private static void trouble(Lane lane, String words, Exception error) {
        if (!words.equals(lane.trouble)) {
            LOG.log(System.Logger.Level.WARNING, words, error);
        }
        lane.trouble = words;
    }

    private void heard(String topic, Lane lane, KafkaProducer<byte[], byte[]> by, Call call, RecordMetadata metadata,
            Exception error) {
        synchronized (this) {
            lane.sent.remove(call.number);
            Following.Order order = centre.following.order(topic, Clock.now());
            boolean atHome = order.writes() && order.cluster().equals(lane.at) && !lane.leaving && by == lane.producer;
            if (error instanceof AuthorizationException && atHome && !stopping) {
                lane.refused.add(new Refused(call, error, Clock.now(), centre.following.ranOut(topic)));
                return;
            }
            boolean again = error != null && !stopping && (!atHome || error instanceof RetriableException);
            if (again) {
                lane.kept.put(call.number, call);
                return;
            }
        }
        tell(call, metadata, error);
    }

    private void tell(Call call, RecordMetadata metadata, Exception error) {
        if (call.told != null) {
            going("a callback of " + call.record.topic(), () -> call.told.onCompletion(metadata, error));
        }
        synchronized (this) {
            waiting--; // whoever flushes has heard of all by then
            notifyAll();
        }
    }

    Properties settings(String cluster) {
        Properties found = new Properties();
        found.put("max.block.ms", 2_000);
        found.putAll(clusters.get(cluster));
        found.remove(Centre.CLUSTER_ID);
        found.put("acks", "all");
        found.put("enable.idempotence", "true");
        // What was given up might still arrive.
        List.of("delivery.timeout.ms", "retries").forEach(name -> found.put(name, Integer.MAX_VALUE));
        return found;
    }
}
