package io.twinshore.client;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.LeaderNotAvailableException;
import org.apache.kafka.common.errors.TopicAuthorizationException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

/** What a client in Java makes of what it hears, without a broker: a line for each, for the test to read. */
public final class Checks {
    public static void main(String[] words) throws Exception {
        said("there", isThere(null));
        said("absent", isThere(new UnknownTopicOrPartitionException("")));
        said("hidden", isThere(new TopicAuthorizationException("")));
        said("no leader", isThere(new LeaderNotAvailableException("")));
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
}
