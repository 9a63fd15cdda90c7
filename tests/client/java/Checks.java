package io.twinshore.client;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.LeaderNotAvailableException;
import org.apache.kafka.common.errors.TopicAuthorizationException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

/** What a client in Java makes of what it hears, without a broker: a line for each, for the test to read. */
public final class Checks {
    private static final HomeLine.State SETTLED = HomeLine.State.SETTLED, HELD = HomeLine.State.HELD;

    public static void main(String[] words) throws Exception {
        said("there", isThere(null));
        said("absent", isThere(new UnknownTopicOrPartitionException("")));
        said("hidden", isThere(new TopicAuthorizationException("")));
        said("no leader", isThere(new LeaderNotAvailableException("")));
        oneLook();
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
        return new HomeLine("orders", home, home, term, step, state, List.of(points));
    }

    /** An order of before says nothing of what came since. */
    private static void oneLook() {
        Following following = new Following("", List.of("orders"), "east", 5 * Following.SECOND);
        following.met("east", "east");
        following.read(List.of(line("east", 1, 0, SETTLED)), 1);
        Following.Order before = following.heard("orders");
        following.read(List.of(line("east", 1, 1, HELD)), 2);
        Following.Order since = following.heard("orders");
        said("before", "writes " + before.writes() + ", held " + before.held());
        said("since", "writes " + since.writes() + ", held " + since.held());
        following.met("east", "another");
        following.read(List.of(line("east", 1, 2, SETTLED)), 3);
        said("unknown", "held " + following.heard("orders").held());
    }
}
