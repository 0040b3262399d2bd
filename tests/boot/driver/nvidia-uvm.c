/* A second module, which needs the first, and has a number that the kernel gives. */
#include <linux/fs.h>
#include <linux/module.h>

static const struct file_operations nothing = {.owner = THIS_MODULE};
static int number;

int made_up_driver_is_here(void);

static int __init start(void)
{
    number = register_chrdev(0, "nvidia-uvm", &nothing);
    return number < 0 ? number : made_up_driver_is_here() - 1;
}

static void __exit stop(void)
{
    unregister_chrdev(number, "nvidia-uvm");
}

module_init(start);
module_exit(stop);
MODULE_LICENSE("GPL");
