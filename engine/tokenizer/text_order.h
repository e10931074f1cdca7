/* Two orders that the reference inherits from its C++ library, needed only to break ties as it does:
 * docs/tokenizer.md, "Ties". */
#ifndef GGUFD_TOKENIZER_TEXT_ORDER_H
#define GGUFD_TOKENIZER_TEXT_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/span.h"

/* Orders ids by length of text, longest first, equal lengths as libstdc++'s std::sort leaves them. */
void text_order_by_length(uint32_t *ids, size_t n, const struct span *texts);

/* Of the candidate ids (indices into texts[0..n)), the one that libstdc++'s unordered_map<string, int> visits first
 * when texts[0], texts[1], ... were inserted in turn. false: no memory. */
bool text_order_first_hashed(const struct span *texts, size_t n, const uint32_t *candidates, size_t n_candidates,
                             uint32_t *first);

#endif
