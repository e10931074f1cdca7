/* Runs of the generated table -> pages; pages that lie inside one run are shared. See unicode.h. */
#include "engine/tokenizer/unicode.h"

#include <stddef.h>
#include <string.h>

#include "engine/tokenizer/unicode_table.inc"

enum { N_RUNS = sizeof unicode_runs / sizeof unicode_runs[0], N_CLASSES = sizeof unicode_atoms / sizeof unicode_atoms[0] };
_Static_assert((int)N_CLASSES <= (int)UNICODE_CLASSES, "class numbers fit");

const uint32_t *unicode_class_atoms(unsigned *n_classes)
{
    *n_classes = N_CLASSES;
    return unicode_atoms;
}

static uint32_t run_start(size_t i)
{
    return i < N_RUNS ? unicode_runs[i] >> 8 : UNICODE_LAST + 1;
}

/* Pages 0..N_CLASSES-1 hold one class each; the mixed ones follow. Fills them when page is not NULL; returns how many
 * pages there are. */
static size_t lay_pages(uint8_t (*page)[256], uint16_t *page_of)
{
    size_t run = 0, n = N_CLASSES;
    for (uint32_t p = 0; p < UNICODE_PAGES; p++) {
        uint32_t first = p * 256;
        while (run_start(run + 1) <= first)
            run++;
        if (run_start(run + 1) >= first + 256) {
            page_of[p] = (uint16_t)(unicode_runs[run] & 0xff);
            continue;
        }
        for (uint32_t c = 0; page && c < 256; c++) {
            while (run_start(run + 1) <= first + c)
                run++;
            page[n][c] = (uint8_t)unicode_runs[run];
        }
        page_of[p] = (uint16_t)n++;
    }
    return n;
}

bool unicode_map_init(struct unicode_map *m, struct arena *a)
{
    m->page = arena_array(a, lay_pages(NULL, m->page_of), sizeof *m->page);
    if (!m->page)
        return false;
    for (unsigned c = 0; c < N_CLASSES; c++)
        memset(m->page[c], (int)c, sizeof m->page[c]);
    lay_pages(m->page, m->page_of);
    return true;
}
