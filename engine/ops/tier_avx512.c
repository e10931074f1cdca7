/* The operations compiled for tier avx512. */
#if defined(__x86_64__)

#define TIER_NAME avx512
#define TIER_IS_AVX512
#include "engine/ops/lanes.h"

#include "engine/ops/rows_lanes.h"

#include "engine/ops/attention_lanes.h"

#else
typedef int tier_avx512_is_for_another_architecture;
#endif
