import com.ctrip.framework.apollo.mockserver.ApolloTestingServer;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;

/** Apollo's own server for tests. Each line on standard input sets a key: namespace, key, and the value in base 64. */
public final class Pushing {
    public static void main(String[] words) throws Exception {
        ApolloTestingServer server = new ApolloTestingServer();
        server.start();
        System.out.println("at " + System.getProperty("apollo.config-service"));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split(" ", 3);
            String value = new String(Base64.getDecoder().decode(parts[2]), StandardCharsets.UTF_8);
            server.addOrModifyProperty(parts[0], parts[1], value);
            System.out.println("set");
        }
        server.close();
        System.exit(0);
    }
}
