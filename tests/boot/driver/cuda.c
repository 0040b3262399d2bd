/* A library in place of each of the driver's. */
int cuInit(unsigned flags);

int cuInit(unsigned flags)
{
    return (int)flags + 7;
}
