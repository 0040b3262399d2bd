/* The tables that turn stored weight bytes into floats.  Knows the formats only (model.md 3.1). */
#include "kernels/cpu/vector.h"

#include <math.h>

float CPU_E4M3[256][256];
float CPU_E2M1[256][16];
float CPU_E8M0[256];

static double e4m3(int code)
{
    int exponent = (code >> 3) & 15, mantissa = code & 7;
    double value = exponent == 0 ? ldexp(mantissa, -9) : ldexp(8 + mantissa, exponent - 10);
    return code & 0x80 ? -value : value;
}

static double e2m1(int code)
{
    static const double MAGNITUDE[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    return code & 8 ? -MAGNITUDE[code & 7] : MAGNITUDE[code & 7];
}

void cpu_tables_fill(void)
{
    for (int s = 0; s < 256; s++) {
        /* E8M0: 2^(s - 127); 255 is NaN */
        double scale = s == 255 ? (double)NAN : ldexp(1.0, s - 127);
        CPU_E8M0[s] = (float)scale;
        for (int code = 0; code < 256; code++)
            CPU_E4M3[s][code] = (float)(e4m3(code) * scale);
        for (int code = 0; code < 16; code++)
            CPU_E2M1[s][code] = (float)(e2m1(code) * scale);
    }
}
