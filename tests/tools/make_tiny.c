/* Writes a tiny model with random weights: make_tiny PATH [ARCHITECTURE [f32|q8_0|vocab]]. For `make run` without a
 * model at hand, and for trying things out. */
#include <stdio.h>
#include <string.h>

#include "tests/support/gguf_builder.h"

int main(int argc, char **argv)
{
    const char *kind = argc > 3 ? argv[3] : "q8_0";
    struct tiny_model model = {.architecture = argc > 2 ? argv[2] : "llama", .type = 8, .context = 1024, .seed = 1};
    if (argc < 2 || argc > 4) {
        fprintf(stderr, "usage: %s PATH [llama|qwen2|qwen3|mistral3 [f32|q8_0|vocab]]\n", argv[0]);
        return 1;
    }
    model.type = strcmp(kind, "f32") == 0 ? 0 : 8;
    model.vocabulary_only = strcmp(kind, "vocab") == 0;
    model.bpe = strncmp(model.architecture, "qwen", 4) == 0;
    struct gguf_builder *b = gguf_builder_tiny(&model);
    gguf_builder_write(b, argv[1]);
    gguf_builder_free(b);
    return 0;
}
