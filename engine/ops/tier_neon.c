/* The operations compiled for tier neon. */
#if defined(__aarch64__)

#define TIER_NAME neon
#define TIER_IS_NEON
#include "engine/ops/lanes.h"

#include "engine/ops/rows_lanes.h"

#include "engine/ops/attention_lanes.h"

#else
typedef int tier_neon_is_for_another_architecture;
#endif
