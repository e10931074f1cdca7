/* Files that are given as a model by mistake, told by their first bytes. One row a kind. */
#include <string.h>

#include "engine/gguf/reader.h"

static const struct {
    const char *magic;
    size_t size;
    const char *what;
} kinds[] = {
    {"version https://git-lfs", 23, "a Git LFS pointer, not the model itself (run: git lfs pull)"},
    {"\x1f\x8b", 2, "a gzip file (decompress it first)"},
    {"PK\x03\x04", 4, "a zip archive (perhaps a PyTorch checkpoint), not a GGUF file"},
    {"\x28\xb5\x2f\xfd", 4, "a zstd file (decompress it first)"},
    {"FUGG", 4, "a byte-swapped (big-endian) GGUF file; only little-endian files are supported"},
    {"lmgg", 4, "an old GGML file; convert it to GGUF"},
    {"tjgg", 4, "an old GGJT file; convert it to GGUF"},
    {"fmgg", 4, "an old GGMF file; convert it to GGUF"},
    {"<!DOCTYPE", 9, "an HTML page (a failed download?)"},
    {"<html", 5, "an HTML page (a failed download?)"},
};

/* safetensors has no magic: a u64 header length, then a JSON object of that length. */
static bool is_safetensors(const char *data, size_t size)
{
    uint64_t header;
    if (size < 10)
        return false;
    memcpy(&header, data, sizeof header);
    return header >= 2 && header <= size - 8 && data[8] == '{';
}

const char *foreign_format(const char *data, size_t size)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (size >= kinds[i].size && memcmp(data, kinds[i].magic, kinds[i].size) == 0)
            return kinds[i].what;
    return is_safetensors(data, size) ? "a safetensors file, not a GGUF file" : NULL;
}
