/* The operations compiled for tier avx2. */
#if defined(__x86_64__)

#define TIER_NAME avx2
#define TIER_IS_AVX2
#include "engine/ops/lanes.h"

#include "engine/ops/rows_lanes.h"

#include "engine/ops/attention_lanes.h"

#else
typedef int tier_avx2_is_for_another_architecture;
#endif
