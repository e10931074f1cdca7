/* Tables of values that packed weights index. The grids are generated: tables/generate.py. */
#ifndef GGUFD_QUANT_TABLES_H
#define GGUFD_QUANT_TABLES_H

#include <stdint.h>

extern const int8_t table_iq4_nl[16];
extern const int8_t table_fp4[16];  /* twice the values of E2M1 */

/* Byte j is element j. */
extern const uint8_t grid_iq2_xxs[256][8];
extern const uint8_t grid_iq2_xs[512][8];
extern const uint8_t grid_iq2_s[1024][8];
extern const uint8_t grid_iq3_xxs[256][4];
extern const uint8_t grid_iq3_s[512][4];
extern const int8_t grid_iq1[2048][8];

/* Seven stored sign bits -> eight: the eighth is their parity. */
static inline unsigned signs_of_seven(unsigned z)
{
    unsigned parity = z ^ z >> 4;
    parity ^= parity >> 2;
    parity ^= parity >> 1;
    return (z & 127) | (parity & 1) << 7;
}

#endif
