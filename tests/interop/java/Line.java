import java.io.PrintStream;
import java.net.URLDecoder;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * One line of the talk between a test and the driver: {@code NUMBER WORD name=value&name=value}, values
 * percent-encoded. A command's word is its verb; an answer's is "row" any number of times, then "ok" or "error".
 */
final class Line {
    final String number;
    final String word;
    private final Map<String, String> values = new LinkedHashMap<>();

    Line(String number, String word) {
        this.number = number;
        this.word = word;
    }

    static Line parse(String text) {
        String[] parts = text.split(" ", 3);
        Line line = new Line(parts[0], parts[1]);
        for (String pair : parts.length < 3 ? new String[0] : parts[2].split("&")) {
            int at = pair.indexOf('=');
            if (at > 0) {
                line.values.put(decode(pair.substring(0, at)), decode(pair.substring(at + 1)));
            }
        }
        return line;
    }

    Line with(String name, Object value) {
        values.put(name, value == null ? "" : value.toString());
        return this;
    }

    void printTo(PrintStream out) {
        StringBuilder text = new StringBuilder(number).append(' ').append(word).append(' ');
        for (Map.Entry<String, String> pair : values.entrySet()) {
            text.append(encode(pair.getKey())).append('=').append(encode(pair.getValue())).append('&');
        }
        out.println(text);
    }

    /** What signs the requests of a client with "access" and "secret"; null where it has no account. */
    RPCHook hook() {
        return has("access") ? new AclClientRPCHook(new SessionCredentials(get("access"), get("secret"))) : null;
    }

    /** The value, which the test must have given. */
    String get(String name) {
        String value = values.get(name);
        if (value == null) {
            throw new IllegalArgumentException(word + " needs " + name);
        }
        return value;
    }

    String get(String name, String otherwise) {
        return values.getOrDefault(name, otherwise);
    }

    int number(String name) {
        return Integer.parseInt(get(name));
    }

    int number(String name, int otherwise) {
        return has(name) ? number(name) : otherwise;
    }

    boolean has(String name) {
        return values.containsKey(name);
    }

    /** The lines of a value; none when it is absent. */
    List<String> lines(String name) {
        return has(name) ? Arrays.asList(get(name).split("\n", -1)) : Collections.<String>emptyList();
    }

    /** The pairs whose names begin with the prefix, without it. */
    Map<String, String> under(String prefix) {
        Map<String, String> found = new LinkedHashMap<>();
        values.forEach((name, value) -> {
            if (name.startsWith(prefix)) {
                found.put(name.substring(prefix.length()), value);
            }
        });
        return found;
    }

    private static String encode(String text) {
        try {
            return URLEncoder.encode(text, StandardCharsets.UTF_8.name());
        } catch (java.io.UnsupportedEncodingException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    private static String decode(String text) {
        try {
            return URLDecoder.decode(text, StandardCharsets.UTF_8.name());
        } catch (java.io.UnsupportedEncodingException impossible) {
            throw new IllegalStateException(impossible);
        }
    }
}
