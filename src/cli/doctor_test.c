#include "base/test.h"

#include <string.h>

#include "base/json.h"
#include "base/version.h"
#include "cli/doctor.h"

/* A machine and a cluster of two with which nothing is wrong. */
static struct doctor_facts f;
static struct doctor_report r;

static void add_iface(const char *name, enum netif_kind kind, u32 mtu, const char *host) {
    struct doctor_iface *i = &f.ifaces[f.n_ifaces++];
    *i = (struct doctor_iface){.is_tried = true, .is_heard = true};
    i->net = (struct netif){.kind = kind, .mtu = mtu, .is_up = true, .has_multicast = true};
    str_copy(i->net.name, sizeof i->net.name, name);
    str_copy(i->net.addrs[0].host, sizeof i->net.addrs[0].host, host);
    i->net.addrs[0].prefix = 24;
    i->net.n_addrs = 1;
}

static struct doctor_peer *add_peer(const char *name, const char *address, const char *state) {
    struct doctor_peer *p = doctor_peer(&f, name, address);
    str_copy(p->name, sizeof p->name, name);
    str_copy(p->state, sizeof p->state, state);
    str_copy(p->build, sizeof p->build, f.version);
    str_copy(p->name_space, sizeof p->name_space, f.cluster);
    p->is_announced = true;
    p->bus = REACH_BUS;
    p->high = REACH_REFUSED;
    p->mss = 1448;
    p->is_measured = p->is_measured_back = p->jumbo_passes = true;
    return p;
}

static int healthy(void **state) {
    (void)state;
    memset(&f, 0, sizeof f);
    memset(&r, 0, sizeof r);
    f.has_node = true;
    str_copy(f.id, sizeof f.id, "self");
    str_copy(f.name, sizeof f.name, "one");
    str_copy(f.cluster, sizeof f.cluster, "default");
    str_copy(f.version, sizeof f.version, version_text());
    str_copy(f.master, sizeof f.master, "self");
    f.bus_port = 52416;
    str_copy(f.machine.models_dir, sizeof f.machine.models_dir, "/models");
    f.machine.ram_bytes = f.machine.mem_total_bytes = 32ull << 30;
    f.machine.mem_available_bytes = 20ull << 30;
    f.machine.disk_free_bytes = 200ull << 30;
    f.machine.n_files_max = 65536;
    add_iface("eth0", NETIF_ETHERNET, 1500, "10.0.0.1");
    add_peer("two", "10.0.0.2:52416", "live");
    return 0;
}

static const struct doctor_finding *judged(const char *check, enum doctor_level level,
                                           const char *text) {
    memset(&r, 0, sizeof r);
    doctor_judge(&f, &r);
    return doctor_find(&r, check, level, text);
}

#define FINDS(check, level, text)                                         \
    do {                                                                  \
        const struct doctor_finding *x_ = judged(check, level, text);     \
        if (!x_) fail_msg("no %s finding with \"%s\"", check, text);      \
        if ((level) >= DOCTOR_WARNING) assert_true(*x_->why || *x_->fix); \
    } while (0)

static void nothing_wrong_is_nothing_found(void **state) {
    (void)state;
    doctor_judge(&f, &r);
    assert_int_equal(doctor_count(&r, DOCTOR_BROKEN), 0);
    assert_int_equal(doctor_count(&r, DOCTOR_WARNING), 0);
    assert_int_equal(doctor_count(&r, DOCTOR_NOTE), 0);
    FINDS("reach", DOCTOR_FINE, "two");
    f = (struct doctor_facts){0}; /* nothing known: nothing claimed but that there is no network */
    assert_non_null(judged("node", DOCTOR_NOTE, "no node runs here"));
    assert_int_equal(doctor_count(&r, DOCTOR_BROKEN), 1);
    FINDS("interface", DOCTOR_BROKEN, "no interface");
}

/* Troubleshooting, "only the local node is listed": firewall, port, ping, namespace, subnet. */
static void only_the_local_node(void **state) {
    (void)state;
    struct doctor_peer *p = &f.peers[0];
    p->state[0] = 0;
    p->bus = REACH_SILENT;
    FINDS("reach", DOCTOR_BROKEN, "10.0.0.2:52416 does not answer at all");
    FINDS("alone", DOCTOR_WARNING, "sees no other node");
    assert_null(strstr(judged("reach", DOCTOR_BROKEN, "two")->fix, "subnets"));
    str_copy(p->address, sizeof p->address, "10.7.0.2:52416");
    assert_non_null(strstr(judged("reach", DOCTOR_BROKEN, "two")->fix, "none of this machine's"));
    str_copy(p->address, sizeof p->address, "10.0.0.2:52416");
    assert_non_null(strstr(judged("reach", DOCTOR_BROKEN, "two")->fix, "allow from 10.0.0.0/24"));
    str_copy(p->state, sizeof p->state, "live");
    FINDS("reach", DOCTOR_WARNING, "nothing can connect to 10.0.0.2:52416");
    p->state[0] = 0;
    str_copy(p->address, sizeof p->address, "10.7.0.2:52416");
    p->bus = REACH_REFUSED;
    FINDS("reach", DOCTOR_BROKEN, "nobody listens at 10.7.0.2:52416");
    p->bus = REACH_OPEN;
    FINDS("reach", DOCTOR_BROKEN, "is not a node's bus");
    p->bus = REACH_NO_ROUTE;
    FINDS("reach", DOCTOR_BROKEN, "there is no way to");
    p->bus = REACH_NO_HOST;
    FINDS("reach", DOCTOR_BROKEN, "no machine of this name");
    p->is_stopped = true; /* by its user: nothing is broken */
    FINDS("stopped", DOCTOR_NOTE, "two was stopped");
    assert_null(judged("reach", DOCTOR_BROKEN, ""));
    assert_null(judged("alone", DOCTOR_WARNING, ""));
    assert_null(judged("alone", DOCTOR_NOTE, ""));
    p->is_stopped = false;
    p->bus = REACH_BUS;
    FINDS("join", DOCTOR_BROKEN, "not in this cluster");
    str_copy(p->name_space, sizeof p->name_space, "blue");
    FINDS("namespace", DOCTOR_NOTE, "'blue', this node in 'default'");
    assert_null(judged("join", DOCTOR_BROKEN, ""));
    p->is_given = true;
    FINDS("namespace", DOCTOR_BROKEN, "'blue'");
    f.n_peers = 0;
    FINDS("alone", DOCTOR_NOTE, "none is announced");
    f.bus_is_local = true;
    FINDS("bus", DOCTOR_BROKEN, "loopback only");
}

static void multicast_and_firewall(void **state) {
    (void)state;
    f.ifaces[0].is_heard = false;
    FINDS("multicast", DOCTOR_BROKEN, "eth0 does not hear");
    f.ifaces[0].is_heard = true;
    f.peers[0].is_announced = false;
    FINDS("multicast", DOCTOR_NOTE, "none of them is heard");
    str_copy(f.discovery_error, sizeof f.discovery_error, "another responder keeps port 5353");
    FINDS("discovery", DOCTOR_WARNING, "another responder");
    str_copy(f.machine.firewall, sizeof f.machine.firewall, "ufw");
    FINDS("firewall", DOCTOR_WARNING, "no rule names the bus port 52416");
    f.machine.firewall_knows = true;
    assert_null(judged("firewall", DOCTOR_WARNING, ""));
    f.peers[0].high = REACH_SILENT;
    FINDS("ports", DOCTOR_WARNING, "drops connections to other ports");
    f.peers[0].high = REACH_REFUSED;
    str_copy(f.peers[0].problem_back, 160, "no answer within 2 s");
    FINDS("ports", DOCTOR_WARNING, "from two to this node: no answer");
}

static void mtu_and_routes(void **state) {
    (void)state;
    f.ifaces[0].net.mtu = 9000;
    FINDS("mtu", DOCTOR_WARNING, "whose end has about 1488");
    f.peers[0].mss = 8948;
    assert_null(judged("mtu", DOCTOR_WARNING, ""));
    f.peers[0].jumbo_passes = false;
    FINDS("mtu", DOCTOR_BROKEN, "don't reach two");
    f.peers[0].jumbo_passes = f.peers[0].big_lost = true;
    str_copy(f.peers[0].problem, 160, "it did not answer in time");
    FINDS("mtu", DOCTOR_BROKEN, "don't reach two");
    assert_null(judged("ports", DOCTOR_WARNING, "")); /* one cause, one finding */
    f.peers[0].big_lost = false;
    str_copy(f.peers[0].problem, 160, "set the MTU of both ends to 1500");
    FINDS("mtu", DOCTOR_BROKEN, "don't reach two");
    str_copy(f.peers[0].problem, 160, "it did not answer in time");
    FINDS("ports", DOCTOR_WARNING, "did not answer in time");
    f.ifaces[0].net.mtu = 1500;
    f.ifaces[0].net.kind = NETIF_WIFI;
    FINDS("route", DOCTOR_WARNING, "over Wi-Fi (eth0)");
    add_iface("en5", NETIF_THUNDERBOLT, 9000, "10.5.0.1");
    FINDS("route", DOCTOR_WARNING, "though there is en5");
    f.ifaces[0].net.kind = NETIF_TUNNEL;
    FINDS("interface", DOCTOR_NOTE, "eth0 is a VPN");
    FINDS("route", DOCTOR_WARNING, "which is a tunnel");
    f.ifaces[0].net.kind = NETIF_ETHERNET;
    f.ifaces[0].net.is_inner = true;
    FINDS("route", DOCTOR_WARNING, "a bridge inside this machine");
    f.ifaces[0].net.is_inner = false;
    f.ifaces[0].net.speed_mbit = 100;
    FINDS("interface", DOCTOR_WARNING, "100 Mbit/s");
    f.peers[0].speed_mbit = 1000;
    f.peers[0].bandwidth_bytes_s = 10000000;
    FINDS("bandwidth", DOCTOR_WARNING, "carries 80 Mbit/s, its interface claims 1000");
}

static void versions_and_clocks(void **state) {
    (void)state;
    struct doctor_peer *p = &f.peers[0];
    str_copy(p->build, sizeof p->build, "0.0.9");
    FINDS("version", DOCTOR_WARNING, "two runs skein 0.0.9");
    str_copy(p->refused, sizeof p->refused, "two speaks protocol 2 (9.9), this node 1 (0.1)");
    FINDS("version", DOCTOR_BROKEN, "protocol 2 (9.9)");
    str_copy(p->refused, sizeof p->refused, "refuses our key: it has another join key");
    p->state[0] = 0;
    FINDS("join", DOCTOR_BROKEN, "refuses our key");
    assert_null(judged("version", DOCTOR_BROKEN, ""));
    str_copy(p->state, sizeof p->state, "live");
    p->refused[0] = 0;
    p->has_skew = true;
    p->skew_ms = -90000;
    FINDS("clock", DOCTOR_WARNING, "90.0 s behind");
    str_copy(f.version, sizeof f.version, "0.0.8");
    FINDS("version", DOCTOR_WARNING, "this program is");
    str_copy(p->follows, sizeof p->follows, "self");
    assert_null(judged("master", DOCTOR_WARNING, ""));
    str_copy(p->follows, sizeof p->follows, "two");
    FINDS("master", DOCTOR_WARNING, "two follows itself");
    str_copy(p->follows, sizeof p->follows, "three");
    FINDS("master", DOCTOR_WARNING, "two follows another master");
    f.master[0] = 0;
    FINDS("master", DOCTOR_BROKEN, "no master");
    f.machine.is_mac = true;
    str_copy(f.machine.os, sizeof f.machine.os, "macOS 26.2");
    str_copy(p->os, sizeof p->os, "macOS 26.1");
    FINDS("os", DOCTOR_WARNING, "two runs macOS 26.1, this machine macOS 26.2");
    f.is_open = true;
    FINDS("key", DOCTOR_NOTE, "no join key");
}

/* Troubleshooting, "out of memory at load" and "slow generation". */
static void memory_and_speed(void **state) {
    (void)state;
    struct doctor_machine *m = &f.machine;
    f.instances[0] = (struct doctor_instance){
        .model = "llama-70b",
        .status = "waiting",
        .text = "needs 41.0 GiB, the cluster has 26.1 GiB free on 2 nodes"};
    f.n_instances = 1;
    FINDS("instance", DOCTOR_BROKEN, "needs 41.0 GiB");
    assert_non_null(strstr(judged("instance", DOCTOR_BROKEN, "")->fix, "smaller quantization"));
    str_copy(f.instances[0].status, 16, "ready");
    assert_null(judged("instance", DOCTOR_BROKEN, ""));
    assert_null(judged("speed", DOCTOR_NOTE, ""));
    struct doctor_instance *x = &f.instances[0];
    x->n_ranks = 2;
    str_copy(x->sharding, sizeof x->sharding, "Pipeline");
    str_copy(x->nodes[0], 65, "self");
    str_copy(x->nodes[1], 65, "two");
    FINDS("speed", DOCTOR_NOTE, "split by layers over 2 ranks");
    assert_null(judged("speed", DOCTOR_WARNING, ""));
    f.peers[0].kind = NETIF_WIFI;
    FINDS("speed", DOCTOR_WARNING, "linked by Wi-Fi");
    str_copy(x->sharding, sizeof x->sharding, "Tensor");
    assert_null(judged("speed", DOCTOR_NOTE, ""));
    m->mem_available_bytes = 1 << 30;
    FINDS("memory", DOCTOR_WARNING, "only 1.0 GiB");
    m->mem_total_bytes = 8ull << 30;
    FINDS("memory", DOCTOR_NOTE, "8.0 GiB of this machine's 32.0 GiB");
    m->swap_total_bytes = 16ull << 30;
    FINDS("swap", DOCTOR_WARNING, "16.0 GiB are swapped out");
    m->disk_free_bytes = 5ull << 30;
    FINDS("disk", DOCTOR_WARNING, "5.0 GiB are left");
    m->disk_free_bytes = 1 << 20;
    FINDS("disk", DOCTOR_BROKEN, "1.0 MiB");
    str_copy(m->models_error, DOCTOR_TEXT, "/models: Permission denied");
    FINDS("models", DOCTOR_BROKEN, "Permission denied");
    m->n_files_max = 256;
    FINDS("files", DOCTOR_WARNING, "256 files");
    m->speed_pct = 60;
    FINDS("thermal", DOCTOR_WARNING, "60 %");
    m->on_battery = m->low_power = true;
    FINDS("power", DOCTOR_WARNING, "battery");
    FINDS("power", DOCTOR_WARNING, "low power mode");
    str_copy(m->governor, sizeof m->governor, "powersave");
    FINDS("governor", DOCTOR_NOTE, "powersave");
    f.peers[0].is_throttled = true;
    FINDS("thermal", DOCTOR_WARNING, "two has slowed down");
    m->gpus[0] = (struct doctor_gpu){.name = "a GPU of NVIDIA", .driver = "nouveau"};
    m->gpus[0].is_unusable = true;
    m->n_gpus = 1;
    FINDS("gpu", DOCTOR_WARNING, "a GPU of NVIDIA is there, but");
}

static const char SERVICES[] = "An asterisk (*) denotes that a network service is disabled.\n"
                               "(1) Ethernet\n"
                               "(Hardware Port: Ethernet, Device: en0)\n"
                               "\n"
                               "(2) Thunderbolt 1\n"
                               "(Hardware Port: Thunderbolt 1, Device: en2)\n"
                               "\n"
                               "(*) Thunderbolt 2\n"
                               "(Hardware Port: Thunderbolt 2, Device: en3)\n"
                               "\n"
                               "(4) Thunderbolt Bridge\n"
                               "(Hardware Port: Thunderbolt Bridge, Device: bridge0)\n";
static const char IFCONFIG[] =
    "lo0: flags=8049<UP,LOOPBACK,RUNNING,MULTICAST> mtu 16384\n"
    "\tinet 127.0.0.1 netmask 0xff000000\n"
    "en2: flags=8963<UP,BROADCAST,SMART,RUNNING,PROMISC,SIMPLEX,MULTICAST> mtu 1500\n"
    "\toptions=460<TSO4,TSO6,CHANNEL_IO>\n"
    "\tether 36:5c:5f:00:00:01\n"
    "\tmedia: autoselect <full-duplex>\n"
    "\tstatus: active\n"
    "en3: flags=8963<UP,BROADCAST,SMART,RUNNING,PROMISC,SIMPLEX,MULTICAST> mtu 9000\n"
    "\tstatus: inactive\n"
    "bridge0: flags=8863<UP,BROADCAST,SMART,RUNNING,SIMPLEX,MULTICAST> mtu 1500\n"
    "\tConfiguration:\n"
    "\t\tid 0:0:0:0:0:0 priority 0 hellotime 0 fwddelay 0\n"
    "\tmember: en2 flags=3<LEARNING,DISCOVER>\n"
    "\t        ifmaxaddr 0 port 9 priority 0 path cost 0\n"
    "\tmember: en3 flags=3<LEARNING,DISCOVER>\n"
    "\tstatus: active\n";
static const char THUNDERBOLT[] =
    "Thunderbolt/USB4:\n\n    Thunderbolt/USB4 Bus 2:\n\n      Vendor Name: Apple Inc.\n"
    "      Port:\n          Status: Device connected\n          Link Status: 0x2\n"
    "          Speed: 80 Gb/s\n          Receptacle: 3\n\n    Thunderbolt/USB4 Bus 1:\n"
    "      Port:\n          Status: No device connected\n          Link Status: 0x7\n"
    "          Speed: Up to 120 Gb/s\n          Receptacle: 2\n";

static void macs_tell_their_ports(void **state) {
    (void)state;
    struct doctor_mac m = {0};
    doctor_parse_services(SERVICES, &m);
    doctor_parse_ifconfig(IFCONFIG, &m);
    assert_int_equal(m.n_ports, 3);
    assert_string_equal(m.ports[0].service, "Thunderbolt 1");
    assert_string_equal(m.ports[0].device, "en2");
    assert_int_equal(m.ports[0].mtu, 1500);
    assert_true(m.ports[0].is_active && m.ports[0].is_member && !m.ports[0].is_bridge);
    assert_true(m.ports[1].is_disabled && !m.ports[1].is_active && m.ports[1].mtu == 9000);
    assert_true(m.ports[2].is_bridge && m.ports[2].is_active && !m.ports[2].is_disabled);
    doctor_parse_getinfo("Manual Configuration\nIP address: 10.0.0.5\n", &m.ports[0]);
    assert_true(m.ports[0].is_manual);
    doctor_parse_getinfo("DHCP Configuration\nIP address: 169.254.2.2\n", &m.ports[0]);
    assert_false(m.ports[0].is_manual);
    doctor_parse_thunderbolt(THUNDERBOLT, &m);
    assert_int_equal(m.thunderbolt_gbit, 80);
    doctor_parse_sw_vers("ProductName:\t\tmacOS\nProductVersion:\t\t26.2\nBuildVersion:\t\t25C56\n",
                         &m);
    assert_string_equal(m.version, "26.2");
    assert_string_equal(m.build, "25C56");
    doctor_parse_rdma_ctl("disabled\n", &m);
    assert_int_equal(m.rdma, SWITCH_OFF);
    doctor_parse_rdma_ctl("enabled\n", &m);
    assert_int_equal(m.rdma, SWITCH_ON);
    doctor_parse_mac_firewall("Firewall is enabled. (State = 1) \nFirewall has block all state "
                              "set to disabled.\n",
                              &m);
    assert_true(m.firewall == SWITCH_ON && m.block_all == SWITCH_OFF);
}

static void other_programs_words(void **state) {
    (void)state;
    bool knows;
    assert_int_equal(doctor_parse_speed_limit("Note: No thermal warning level has been recorded\n"
                                              "\tCPU_Scheduler_Limit \t= 100\n"
                                              "\tCPU_Speed_Limit \t= 62\n"),
                     62);
    assert_int_equal(doctor_parse_speed_limit("Note: nothing recorded\n"), 0);
    assert_int_equal(doctor_parse_low_power(" standby 0\n lowpowermode         1\n"), SWITCH_ON);
    assert_int_equal(doctor_parse_low_power(" standby 0\n"), SWITCH_UNKNOWN);
    assert_true(doctor_parse_on_battery("Now drawing from 'Battery Power'\n"));
    assert_false(doctor_parse_on_battery("Now drawing from 'AC Power'\n"));
    assert_true(doctor_parse_ufw("Status: active\n\nTo      Action      From\n"
                                 "22/tcp  ALLOW       Anywhere\n",
                                 52416, &knows));
    assert_false(knows);
    assert_true(
        doctor_parse_ufw("Status: active\n\n52415:52420/tcp  ALLOW  Anywhere\n", 52416, &knows));
    assert_true(knows);
    assert_true(doctor_parse_ufw("Status: active\nAnywhere  ALLOW  10.0.0.0/24\n", 1, &knows));
    assert_true(knows);
    assert_false(doctor_parse_ufw("Status: inactive\n", 52416, &knows));
    assert_true(doctor_parse_nft("table inet filter {\n\tchain input {\n\t\ttype filter hook input "
                                 "priority filter; policy drop;\n\t\ttcp dport 22 accept\n\t}\n}\n",
                                 52416, &knows));
    assert_false(knows);
    assert_false(doctor_parse_nft("chain input {\ntype filter hook input priority 0; policy "
                                  "accept;\ntcp dport 52000-53000 accept\n}\n",
                                  52416, &knows));
    assert_true(knows);
    assert_true(doctor_version_cmp("26.10", "26.9") > 0);
    assert_true(doctor_version_cmp("26", "26.2") < 0);
    assert_int_equal(doctor_version_cmp("26.2.0", "26.2"), 0);
}

/* Troubleshooting, "RDMA not available": macOS below 26.2, rdma_ctl, cable, port, bridge, DHCP. */
static void rdma_on_macs(void **state) {
    (void)state;
    struct doctor_mac *m = &f.machine.mac;
    f.machine.is_mac = true;
    assert_null(judged("rdma", DOCTOR_WARNING, "")); /* no Thunderbolt: nobody is nagged */
    m->thunderbolt_gbit = 40;
    FINDS("rdma", DOCTOR_NOTE, "40 Gbit/s");
    m->thunderbolt_gbit = 80;
    str_copy(m->version, sizeof m->version, "26.1");
    FINDS("rdma", DOCTOR_WARNING, "macOS 26.1");
    str_copy(m->version, sizeof m->version, "26.2");
    FINDS("rdma", DOCTOR_WARNING, "no rdma_ctl");
    m->has_rdma_ctl = true;
    m->rdma = SWITCH_OFF;
    FINDS("rdma", DOCTOR_WARNING, "RDMA is disabled");
    assert_non_null(strstr(judged("rdma", DOCTOR_WARNING, "")->fix, "rdma_ctl enable"));
    m->rdma = SWITCH_ON;
    FINDS("rdma", DOCTOR_FINE, "enabled");
    doctor_parse_services(SERVICES, m);
    doctor_parse_ifconfig(IFCONFIG, m);
    m->ports[0].is_manual = true;
    FINDS("thunderbolt", DOCTOR_BROKEN, "bridge0");
    FINDS("thunderbolt", DOCTOR_WARNING, "set by hand");
    FINDS("mtu", DOCTOR_NOTE, "en2");
    m->firewall = m->block_all = SWITCH_ON;
    FINDS("firewall", DOCTOR_BROKEN, "blocks all");
}

static void rdma_on_linux(void **state) {
    (void)state;
    str_copy(f.machine.rdma_device, 32, "mlx5_0");
    str_copy(f.machine.rdma_state, 32, "1: DOWN");
    FINDS("rdma", DOCTOR_WARNING, "mlx5_0 is 1: DOWN");
    FINDS("memlock", DOCTOR_WARNING, "0 KiB");
    str_copy(f.machine.rdma_state, 32, "4: ACTIVE");
    FINDS("rdma", DOCTOR_FINE, "mlx5_0");
}

static void a_state_is_read(void **state) {
    (void)state;
    static const char json[] =
        "{\"node_id\": \"aa\", \"name\": \"one\", \"cluster\": \"home\", \"version\": \"1\","
        " \"master\": \"bb\", \"cluster_is_open\": true, \"discovery\": \"\", \"nodes\": ["
        " {\"id\": \"aa\", \"state\": \"self\", \"bus_port\": 7, \"api_port\": 6},"
        " {\"id\": \"bb\", \"name\": \"two\", \"state\": \"live\", \"address\": "
        "\"10.0.0.2:7\",\"is_stopped\": true,"
        "  \"build\": \"2\", \"clock_skew_ms\": -7000, \"is_throttled\": true}],"
        " \"refused\": [{\"id\": \"cc\", \"address\": \"10.0.0.3:7\", \"reason\": \"old\"}],"
        " \"links\": [{\"from\": \"aa\", \"to\": \"bb\", \"rtt_us\": 200, \"jumbo\": true,"
        "  \"kind\": \"ethernet\","
        "  \"speed_mbit\": 1000, \"bandwidth_bytes_per_s\": 5},"
        "  {\"from\": \"bb\", \"to\": \"aa\", \"problem\": \"refused\"}],"
        " \"instances\": {\"i1\": {\"model\": \"m\", \"status\": \"waiting\", \"reason\": \"x\","
        " \"sharding\": \"Tensor\", \"shards\": [{\"node\": \"aa\"}, {\"node\": \"bb\"}]}}}";
    memset(&f, 0, sizeof f);
    doctor_read_state(&f, json, sizeof json - 1);
    assert_true(f.has_node && f.is_open && f.bus_port == 7);
    assert_int_equal(f.n_peers, 2);
    const struct doctor_peer *p = &f.peers[0];
    assert_string_equal(p->state, "live");
    assert_true(p->has_skew && p->skew_ms == -7000 && p->is_throttled && p->is_measured);
    assert_true(p->is_stopped);
    assert_string_equal(p->problem_back, "refused");
    assert_int_equal(p->speed_mbit, 1000);
    assert_string_equal(f.peers[1].refused, "old");
    assert_int_equal(f.n_instances, 1);
    assert_int_equal(f.instances[0].n_ranks, 2);
    assert_string_equal(f.instances[0].nodes[1], "bb");
    assert_int_equal(p->kind, NETIF_ETHERNET);
    struct doctor_facts *g = &f;
    doctor_read_state(g, "[", 1); /* nonsense changes nothing */
    assert_int_equal(g->n_peers, 2);
}

static void what_is_printed(void **state) {
    (void)state;
    struct str out = {0};
    f.peers[0].bus = REACH_SILENT;
    f.peers[0].state[0] = 0;
    doctor_judge(&f, &r);
    doctor_text(&f, &r, false, &out);
    assert_non_null(strstr(out.p, "BROKEN  reach"));
    assert_non_null(strstr(out.p, "fix: "));
    assert_null(strstr(out.p, "  ok "));
    assert_non_null(strstr(out.p, "1 broken, 1 warning,"));
    str_clear(&out);
    doctor_json(&r, &out);
    json_t *j = json_parse(str_view(&out), NULL);
    assert_non_null(j);
    assert_true(json_is_false(json_object_get(j, "ok")));
    assert_int_equal(json_array_size(json_object_get(j, "findings")), r.n);
    json_decref(j);
    str_deinit(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(nothing_wrong_is_nothing_found, healthy),
        cmocka_unit_test_setup(only_the_local_node, healthy),
        cmocka_unit_test_setup(multicast_and_firewall, healthy),
        cmocka_unit_test_setup(mtu_and_routes, healthy),
        cmocka_unit_test_setup(versions_and_clocks, healthy),
        cmocka_unit_test_setup(memory_and_speed, healthy),
        cmocka_unit_test_setup(macs_tell_their_ports, healthy),
        cmocka_unit_test_setup(other_programs_words, healthy),
        cmocka_unit_test_setup(rdma_on_macs, healthy),
        cmocka_unit_test_setup(rdma_on_linux, healthy),
        cmocka_unit_test_setup(a_state_is_read, healthy),
        cmocka_unit_test_setup(what_is_printed, healthy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
