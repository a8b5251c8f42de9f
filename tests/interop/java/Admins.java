import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.admin.MQAdminExt;

/** What programs ask as administrators: any method of MQAdminExt by its name, its answer as JSON. */
final class Admins {
    private final Map<String, DefaultMQAdminExt> admins = new ConcurrentHashMap<>();

    void register(Map<String, Driver.Verb> verbs) {
        verbs.put("ask", this::ask);
    }

    void clear() {
        admins.values().forEach(DefaultMQAdminExt::shutdown);
        admins.clear();
    }

    private void ask(Line command, Driver.Answer answer) throws Exception {
        List<String> given = command.lines("given");
        for (Method method : MQAdminExt.class.getMethods()) {
            Object[] arguments = method.getName().equals(command.get("method"))
                ? arguments(method.getParameterTypes(), given) : null;
            if (arguments == null) {
                continue;
            }
            try {
                Object result = method.invoke(admin(command.get("namesrv")), arguments);
                answer.add(answer.row().with("json", RemotingSerializable.toJson(result, false)));
                return;
            } catch (InvocationTargetException error) {
                throw (Exception) error.getCause();
            }
        }
        throw new NoSuchMethodException(command.get("method") + " of " + given);
    }

    private DefaultMQAdminExt admin(String namesrv) throws Exception {
        DefaultMQAdminExt admin = admins.get(namesrv);
        if (admin == null) {
            admin = new DefaultMQAdminExt();
            admin.setNamesrvAddr(namesrv);
            admin.setInstanceName("admin" + System.nanoTime());
            admin.start();
            admins.put(namesrv, admin);
        }
        return admin;
    }

    /** The texts as what a method takes; null when it takes something else. */
    private static Object[] arguments(Class<?>[] types, List<String> given) {
        if (types.length != given.size()) {
            return null;
        }
        List<Object> arguments = new ArrayList<>();
        for (int number = 0; number < types.length; number++) {
            String text = given.get(number);
            Class<?> type = types[number];
            if (type == String.class) {
                arguments.add(text);
            } else if (type == Set.class) {
                arguments.add(Collections.singleton(text));
            } else if (type == boolean.class && text.matches("true|false")) {
                arguments.add(Boolean.valueOf(text));
            } else if (type == int.class && text.matches("-?\\d+")) {
                arguments.add(Integer.valueOf(text));
            } else if (type == long.class && text.matches("-?\\d+")) {
                arguments.add(Long.valueOf(text));
            } else if (text.startsWith("{")) {
                arguments.add(RemotingSerializable.fromJson(text, type));
            } else {
                return null;
            }
        }
        return arguments.toArray();
    }
}
