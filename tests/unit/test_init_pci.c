/* GPUs on the PCI bus: a made-up /sys, whole, hostile and empty; and the driver's errors among the
 * kernel's lines. */
#include "init/pci.h"

#include "tests/unit/made_sys.h"

#include <stdbool.h>
#include <unistd.h>

static char text_bytes[GPU_TEXT_BYTES], data_bytes[GPU_TEXT_BYTES];

static void put_gpu(const char *bus)
{
    char path[256];
    made_text(bus, "vendor", "0x10de\n");
    made_text(bus, "class", "0x030200\n");
    made_text(bus, "device", "0x2bb5\n");
    made_text(bus, "current_link_speed", "32.0 GT/s PCIe\n");
    made_text(bus, "max_link_speed", "32.0 GT/s PCIe\n");
    made_text(bus, "current_link_width", "16\n");
    made_text(bus, "max_link_width", "16\n");
    made_text(bus, "aer_dev_correctable", "RxErr 3\nBadTLP 4\nTOTAL_ERR_COR 7\n");
    made_text(bus, "aer_dev_fatal", "Undefined 0\nTOTAL_ERR_FATAL 1\n");
    made_text(bus, "aer_dev_nonfatal", "Undefined 0\nTOTAL_ERR_NONFATAL 2\n");
    snprintf(path, sizeof path, "%s/%s/driver", root, bus);
    assert_int_equal(symlink("../../../bus/pci/drivers/nvidia", path), 0);
}

static void tell(const struct gpu *payload, const struct xids *xids)
{
    struct text text = text_over(text_bytes, sizeof text_bytes);
    struct text data = text_over(data_bytes, sizeof data_bytes);
    char version[256];
    snprintf(version, sizeof version, "%s/module/version", root);
    pci_tell(root, version, payload, xids, &text, &data);
    assert_false(text.cut || data.cut);
}

static void told(const char *text)
{
    if (strstr(text_bytes, text) == NULL)
        fail_msg("no \"%s\" in:\n%s", text, text_bytes);
}

static void a_gpu_is_told(void **state)
{
    struct gpu payload = {.wanted = true, .ready = true, .device = "vda2"};
    struct xids xids = {.others = 0};
    (void)state;
    strcpy(payload.verity.version, "580.65.06");
    put_gpu("0000:c1:00.0");
    put_gpu("0000:41:00.0");
    made_text("0000:41:00.0", "current_link_width", "8\n");
    made_text("0000:42:00.0", "vendor", "0x10de\n"); /* its sound */
    made_text("0000:42:00.0", "class", "0x040300\n");
    made_text("0000:01:00.0", "vendor", "0x8086\n"); /* another's picture */
    made_text("0000:01:00.0", "class", "0x030000\n");
    made_text("module", "version", "580.65.06\n");
    char reason[128];
    assert_null(pci_layout_wrong(root, "auto", reason, sizeof reason));
    assert_null(pci_layout_wrong(root, "2x1", reason, sizeof reason));
    assert_null(pci_layout_wrong(root, "1x2", reason, sizeof reason));
    assert_string_equal(pci_layout_wrong(root, "2x4", reason, sizeof reason),
                        "gpus 2x4 takes 8 GPUs, and 2 are on the PCI bus (see: gpu); choose fewer, "
                        "or auto");
    static const char LINE[] = "NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus.";
    assert_true(xid_take(&xids, LINE, strlen(LINE), 0));
    tell(&payload, &xids);
    told("2 NVIDIA GPUs on the PCI bus\ndriver 580.65.06 is loaded; the payload on vda2 is whole");
    told("GPU 0000:41:00.0  NVIDIA RTX PRO 6000 Blackwell Server Edition\n  driver nvidia, link "
         "32.0 GT/s PCIe x8 of 32.0 GT/s PCIe x16, NARROWER");
    told("errors of the link: 7 corrected, 3 not; Xid: 79: the GPU has FALLEN OFF THE BUS");
    told("GPU 0000:c1:00.0");
    told("x16 of 32.0 GT/s PCIe x16\n");
    told("Xid: none");
    assert_true(strstr(text_bytes, "41:00.0  ") < strstr(text_bytes, "c1:00.0  "));
    assert_non_null(strstr(data_bytes, "\"link_width\":8,\"link_width_max\":16,"
                                       "\"link_errors_corrected\":7,\"link_errors\":3,\"xid\":"
                                       "{\"code\":79,\"count\":1,"));
}

static void no_gpu_is_told(void **state)
{
    struct gpu payload = {.wanted = false};
    struct xids xids = {.others = 0};
    (void)state;
    tell(&payload, &xids);
    assert_string_equal(text_bytes,
                        "no NVIDIA GPU on the PCI bus; the engine computes on the CPU\n");
    payload.wanted = true;
    tell(&payload, &xids);
    told("no driver is loaded; this system has NO good payload");
}

/* Files that are missing, empty, folders, huge, of any bytes. */
static void hostile_files(void **state)
{
    static const char *const NAMES[] = {
        "device",         "current_link_speed",  "max_link_speed", "current_link_width",
        "max_link_width", "aer_dev_correctable", "aer_dev_fatal",  "aer_dev_nonfatal"};
    static const char *const BYTES[] = {"",
                                        "\n",
                                        "-1\n",
                                        "99999999999999999999\n",
                                        "0x\n",
                                        "\x1b]0;title\x07\n",
                                        "16",
                                        "16 and on\n",
                                        "TOTAL_ERR_COR",
                                        "TOTAL_ERR_COR -4\n"};
    static char huge[100000];
    struct gpu payload = {.wanted = true};
    struct xids xids = {.others = 0};
    char path[256];
    (void)state;
    put_gpu("0000:41:00.0");
    memset(huge, 'x', sizeof huge);
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        for (size_t k = 0; k < sizeof BYTES / sizeof BYTES[0]; k++) {
            made_text("0000:41:00.0", NAMES[i], BYTES[k]);
            tell(&payload, &xids);
            assert_null(strchr(text_bytes, '\x1b'));
        }
        made_bytes("0000:41:00.0", NAMES[i], huge, sizeof huge);
        tell(&payload, &xids);
        snprintf(path, sizeof path, "%s/0000:41:00.0/%s", root, NAMES[i]);
        assert_int_equal(unlink(path), 0);
        tell(&payload, &xids);
        assert_int_equal(mkdir(path, 0700), 0);
        tell(&payload, &xids);
    }
    told("NVIDIA 10de:ffff\n  driver nvidia, link ? x? of ? x?\n  nobody counts errors");
    made_text("0000:zz:00.0", "vendor", "0x10de\n");
    made_text("0000:zz:00.0", "class", "0x030200\n");
    tell(&payload, &xids);
    told("1 NVIDIA GPU on the PCI bus\n");
}

static void more_than_there_is_room_for(void **state)
{
    struct pci_gpu gpus[BOX_GPUS_MAX];
    char bus[32];
    int all;
    (void)state;
    for (int i = BOX_GPUS_MAX + 3; i > 0; i--) {
        snprintf(bus, sizeof bus, "0000:%02x:00.0", i);
        put_gpu(bus);
    }
    assert_int_equal(pci_gpus(root, gpus, &all), BOX_GPUS_MAX);
    assert_int_equal(all, BOX_GPUS_MAX + 3);
    for (int i = 0; i < BOX_GPUS_MAX; i++) {
        snprintf(bus, sizeof bus, "0000:%02x:00.0", i + 1);
        assert_string_equal(gpus[i].bus, bus);
    }
}

static bool takes(struct xids *xids, const char *line, size_t n)
{
    char *exact = malloc(n > 0 ? n : 1); /* so that a read behind the end is seen */
    memcpy(exact, line, n);
    bool good = xid_take(xids, exact, n, 5);
    free(exact);
    return good;
}

static void lines_of_the_kernel(void **state)
{
    static const char LINE[] = "NVRM: Xid (PCI:0000:41:00): 119, pid=7, name=engine, Timeout";
    static const char *const OTHERS[] = {"NVRM: loading NVIDIA UNIX Open Kernel Module",
                                         "Xid (PCI:0000:41:00): 79, x",
                                         "NVRM: Xid (PCI:): 79, x",
                                         "NVRM: Xid (PCI:0000:41:00:00:00:00:00:00): 79, x",
                                         "NVRM: Xid (PCI:0000:41:00): seven",
                                         "NVRM: Xid (PCI:0000:41:00): 123456, x",
                                         "NVRM: Xid (PCI:0000:4\x1b:00): 79, x",
                                         "NVRM: Xid (PCI:0000:41:00) 79, x"};
    struct xids xids = {.others = 0};
    char line[64];
    (void)state;
    for (size_t n = 0; n < strlen(LINE); n++) {
        struct xids cut = {.others = 0};
        (void)takes(&cut, LINE, n);
        assert_true(cut.gpu[0].code <= 119);
    }
    for (size_t i = 0; i < sizeof OTHERS / sizeof OTHERS[0]; i++)
        assert_false(takes(&xids, OTHERS[i], strlen(OTHERS[i])));
    assert_null(xid_find(&xids, "0000:41:00.0"));
    assert_true(takes(&xids, LINE, strlen(LINE)) && takes(&xids, LINE, strlen(LINE)));
    const struct xid *x = xid_find(&xids, "0000:41:00.0");
    assert_non_null(x);
    assert_true(x->code == 119 && x->count == 2);
    assert_non_null(strstr(xid_meaning(119), "system processor"));
    assert_null(xid_meaning(9999));
    assert_null(xid_find(&xids, "0000:41:01.0"));
    for (int i = 0; i < 2 * BOX_GPUS_MAX; i++) {
        snprintf(line, sizeof line, "NVRM: Xid (PCI:0001:%02x:00): 31, x", i);
        assert_true(takes(&xids, line, strlen(line)));
    }
    assert_int_equal(xids.others, BOX_GPUS_MAX + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_gpu_is_told, make_root, clear_root),
        cmocka_unit_test_setup_teardown(no_gpu_is_told, make_root, clear_root),
        cmocka_unit_test_setup_teardown(hostile_files, make_root, clear_root),
        cmocka_unit_test_setup_teardown(more_than_there_is_room_for, make_root, clear_root),
        cmocka_unit_test(lines_of_the_kernel)};
    return cmocka_run_group_tests_name("pci", tests, NULL, NULL);
}
