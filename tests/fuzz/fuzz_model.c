/* Any bytes as a model: refused, or it tokenizes, evaluates and writes its tokens. The seeds are tiny models. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "tests/fuzz/memory_file.h"

static volatile size_t sink;

static void use_vocabulary(struct engine *e)
{
    static const char text[] = "hello <s> the\n w\xc3\xa9 \xff 12";
    for (unsigned flags = 0; flags < 4; flags++) {
        struct engine_ids ids = {0};
        if (engine_tokenize(e, (struct span){text, sizeof text}, flags, 100, &ids, NULL) == STATUS_OK)
            for (size_t i = 0; i < ids.count; i++)
                sink += engine_piece(e, ids.data[i]).size;
        engine_ids_clear(&ids);
    }
}

static void evaluate(struct engine *e)
{
    const int32_t tokens[] = {0, (int32_t)engine_info(e)->n_vocab - 1, 0};
    struct session_sync sync = {.tokens = tokens, .n_tokens = 3, .reuse_limit = SIZE_MAX, .want_all_from = SIZE_MAX};
    struct session *s;
    if (session_new(e, &s, NULL) != STATUS_OK)
        return;
    (void)session_run(s, &sync, NULL, NULL);
    session_free(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct engine *e;
    struct error err;
    struct engine_options options = {.model = memory_file(data, size), .tier = "auto", .threads = 1, .context = 4,
                                     .batch = 2};
    if (engine_open(&options, &e, &err) != STATUS_OK)
        return 0;
    use_vocabulary(e);
    if (!engine_info(e)->vocabulary_only)
        evaluate(e);
    engine_close(e);
    return 0;
}
