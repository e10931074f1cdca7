/* Splitting a text at the tokens that are looked for in it; docs/tokenizer.md section 8. */
#ifndef GGUFD_TOKENIZER_PARTITION_H
#define GGUFD_TOKENIZER_PARTITION_H

#include "engine/tokenizer/vocab.h"

struct trie; /* see partition.c */

struct partition {
    const struct vocab *vocab;
    struct trie *plain, *all; /* tokens matched always, and with parse_special; NULL: none */
};

struct fragment {
    uint32_t start, end; /* bytes of the text */
    int32_t id;          /* TOKEN_NONE: raw text */
};

struct fragment_list {
    struct fragment *data;
    size_t n, capacity;
};

enum status partition_init(struct partition *p, struct vocab *v, struct error *err);

/* Replaces the list's content by the fragments of text in order, no raw one empty. Time: linear in the text times the
 * longest token that the text runs along. Texts are shorter than 2^31 bytes. */
enum status partition_split(const struct partition *p, struct span text, bool parse_special, struct fragment_list *out,
                            struct error *err);
void fragment_list_clear(struct fragment_list *list);

#endif
