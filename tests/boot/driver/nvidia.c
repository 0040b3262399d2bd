/* A module in place of the driver: owns its number, and asks for its firmware. */
#include <linux/firmware.h>
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/platform_device.h>

#define NUMBER   195
#define FIRMWARE "nvidia/" DRIVER_VERSION "/gsp_ga10x.bin"

static const struct file_operations nothing = {.owner = THIS_MODULE};
static struct platform_device *card;

int made_up_driver_is_here(void);
int made_up_driver_is_here(void)
{
    return 1;
}
EXPORT_SYMBOL_GPL(made_up_driver_is_here);

static int __init start(void)
{
    const struct firmware *firmware;
    int code = register_chrdev(NUMBER, "nvidia", &nothing);
    if (code < 0)
        return code;
    card = platform_device_register_simple("made-up-card", -1, NULL, 0);
    if (!IS_ERR(card) && request_firmware(&firmware, FIRMWARE, &card->dev) == 0) {
        pr_notice("made-up driver: firmware of %zu bytes\n", firmware->size);
        release_firmware(firmware);
    }
    return 0;
}

static void __exit stop(void)
{
    unregister_chrdev(NUMBER, "nvidia");
}

module_init(start);
module_exit(stop);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Made up in " __FILE__); /* where it is built must not show */
MODULE_FIRMWARE(FIRMWARE);
