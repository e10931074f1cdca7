/* Any bytes as a GGUF file: refused, or everything it hands out can be read. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/gguf/inspect.h"
#include "tests/fuzz/memory_file.h"

static volatile unsigned sink; /* keeps reads from being optimized away */

static void read_key(const struct gguf_key *key)
{
    const void *cursor = NULL;
    for (uint64_t i = 0; i < key->bytes; i++)
        sink += ((const unsigned char *)key->data)[i];
    if (key->type == GGUF_ARRAY && key->element == GGUF_STRING)
        for (uint64_t i = 0; i < key->count; i++) {
            struct span s = gguf_string_next(key, &cursor);
            sink += s.size ? (unsigned char)s.data[s.size - 1] : 0;
        }
}

static void read_all(struct gguf *g)
{
    struct tensor_check check;
    char name[256];
    uint32_t u;
    for (size_t i = 0; i < gguf_key_count(g); i++) {
        const struct gguf_key *key = gguf_key_at(g, i);
        read_key(key);
        if (key->name.size < sizeof name && !memchr(key->name.data, 0, key->name.size)) {
            memcpy(name, key->name.data, key->name.size);
            name[key->name.size] = 0;
            if (gguf_key_find(g, name) != key)
                abort();
            (void)gguf_get_u32_uniform(g, name, true, &u, NULL);
        }
    }
    for (size_t i = 0; i < gguf_tensor_count(g); i++)
        tensor_check(gguf_tensor_at(g, i), &check);
    if (gguf_has_changed(g, NULL))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gguf *g;
    struct error err;
    if (gguf_open(memory_file(data, size), NULL, &g, &err) == STATUS_OK)
        read_all(g);
    else if (memchr(err.text, 0, sizeof err.text) == NULL || err.text[0] == 0)
        abort();
    gguf_close(g);
    return 0;
}
