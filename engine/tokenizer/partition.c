/* The reference takes the listed tokens in order, longest first, and lets each claim its leftmost free occurrences.
 * Here one walk over the text finds, with a trie, the longest token at every place. Occurrences that overlap form a
 * cluster; clusters do not influence each other, so each is settled by itself in the reference's order (list order,
 * then position). When a candidate is blocked, the longest shorter token at its place that still fits takes its turn.
 *
 * A claimed run is never shorter than a later candidate, so a candidate is free if its first and last byte are. */
#include "engine/tokenizer/partition.h"

#include <stdlib.h>

#include "engine/tokenizer/heap.h"

#define NODE_NONE UINT32_MAX

struct node {
    uint32_t depth;       /* bytes from the root */
    uint32_t text;        /* a token (id) that runs through this node: its bytes [.., depth) lead here */
    uint32_t rank;        /* place in the list of the token that ends here; NODE_NONE: none */
    uint32_t shorter;     /* nearest node above where a token ends; NODE_NONE: none */
    uint32_t first_child; /* children are neighbours */
    uint32_t n_children;
};

struct trie {
    struct node *nodes; /* nodes[0] is the root */
    char *edge;         /* first byte of each node's own bytes */
    uint32_t *by_rank;  /* list place -> node */
    bool starts[256];   /* some token begins with that byte */
    bool strips;        /* some token strips white space */
};

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* ---- building ---- */

struct entry {
    const struct span *texts;
    uint32_t id, rank;
};

static int compare_entries(const void *left, const void *right)
{
    const struct entry *a = left, *b = right;
    struct span s = a->texts[a->id], t = b->texts[b->id];
    size_t n = s.size < t.size ? s.size : t.size;
    int c = memcmp(s.data, t.data, n);
    if (c == 0 && s.size != t.size)
        c = s.size < t.size ? -1 : 1;
    return c ? c : a->rank < b->rank ? -1 : 1;
}

/* Bytes that all of entries[low..high) have in common: those of the first and the last, as they are sorted. */
static uint32_t common_depth(const struct entry *entries, size_t low, size_t high)
{
    struct span a = entries[low].texts[entries[low].id], b = entries[low].texts[entries[high - 1].id];
    uint32_t n = 0;
    while (n < a.size && n < b.size && a.data[n] == b.data[n])
        n++;
    return n;
}

struct range {
    size_t low, high;
};

/* Breadth first: node i stands for the entries of ranges[i]; its children are appended. Returns the node count. */
static uint32_t fill_nodes(struct trie *t, const struct entry *entries, struct range *ranges)
{
    uint32_t n = 1;
    for (uint32_t i = 0; i < n; i++) {
        struct node *node = &t->nodes[i];
        size_t low = ranges[i].low, high = ranges[i].high;
        node->rank = NODE_NONE;
        node->text = entries[low].id;
        node->depth = i == 0 ? 0 : common_depth(entries, low, high);
        while (low < high && entries[low].texts[entries[low].id].size == node->depth) {
            if (node->rank == NODE_NONE) /* of equal texts the first of the list */
                node->rank = entries[low].rank;
            low++;
        }
        if (node->rank != NODE_NONE)
            t->by_rank[node->rank] = i;
        node->first_child = n;
        while (low < high) {
            size_t end = low;
            char byte = entries[low].texts[entries[low].id].data[node->depth];
            while (end < high && entries[end].texts[entries[end].id].data[node->depth] == byte)
                end++;
            ranges[n] = (struct range){low, end};
            t->edge[n] = byte;
            t->nodes[n++].shorter = node->rank != NODE_NONE ? i : node->shorter;
            low = end;
        }
        node->n_children = n - node->first_child;
    }
    return n;
}

static bool trie_build(struct trie *t, struct vocab *v, struct entry *entries, size_t n)
{
    size_t n_nodes = 2 * n + 1; /* each inner node below the root has two children or ends a token */
    t->nodes = arena_array(&v->arena, n_nodes, sizeof *t->nodes);
    t->edge = arena_alloc(&v->arena, n_nodes);
    t->by_rank = arena_array(&v->arena, v->n_listed, sizeof *t->by_rank);
    struct range *ranges = malloc(n_nodes * sizeof *ranges);
    bool ok = t->nodes && t->edge && t->by_rank && ranges;
    if (ok) {
        qsort(entries, n, sizeof *entries, compare_entries);
        t->nodes[0].shorter = NODE_NONE;
        ranges[0] = (struct range){0, n};
        fill_nodes(t, entries, ranges);
    }
    free(ranges);
    for (size_t i = 0; i < n; i++) {
        t->starts[(unsigned char)v->text[entries[i].id].data[0]] = true;
        t->strips |= (v->attribute[entries[i].id] & (TOKEN_LSTRIP | TOKEN_RSTRIP)) != 0;
    }
    return ok;
}

static enum status trie_new(struct trie **out, struct vocab *v, unsigned except, struct error *err)
{
    size_t n = 0, bytes = v->n_listed * sizeof(struct entry);
    struct entry *entries = malloc(bytes + 1);
    if (!entries)
        return error_no_memory(err, bytes, "the vocabulary");
    for (size_t i = 0; i < v->n_listed; i++)
        if (!(v->attribute[v->listed[i]] & except))
            entries[n++] = (struct entry){v->text, v->listed[i], (uint32_t)i};
    enum status s = STATUS_OK;
    if (n) {
        *out = arena_alloc(&v->arena, sizeof **out);
        if (!*out || !trie_build(*out, v, entries, n))
            s = error_no_memory(err, bytes, "the vocabulary");
    }
    free(entries);
    return s;
}

enum status partition_init(struct partition *p, struct vocab *v, struct error *err)
{
    *p = (struct partition){v, NULL, NULL};
    enum status s = trie_new(&p->plain, v, TOKEN_CONTROL | TOKEN_UNKNOWN, err);
    return s == STATUS_OK ? trie_new(&p->all, v, 0, err) : s;
}

/* ---- splitting ---- */

struct splitter {
    const struct partition *partition;
    const struct trie *trie;
    struct span text;
    bool *used;              /* [text.size] bytes claimed; NULL while nothing overlapped */
    struct heap candidates;  /* list place << 32 | position, of the cluster */
    uint32_t cluster_end;    /* bytes from here on do not touch the cluster */
    struct fragment_list *out;
    uint32_t done;           /* end of the last fragment */
};

/* The node of the longest token that starts at data[0..size), NODE_NONE if there is none. */
static uint32_t longest_token(const struct trie *t, const struct span *texts, const char *data, size_t size)
{
    uint32_t at = 0, found = NODE_NONE;
    for (;;) {
        const struct node *node = &t->nodes[at];
        if (node->depth == size || node->n_children == 0)
            return found;
        const char *edges = t->edge + node->first_child;
        const char *edge = memchr(edges, data[node->depth], node->n_children);
        if (!edge)
            return found;
        at = node->first_child + (uint32_t)(edge - edges);
        const struct node *child = &t->nodes[at];
        if (child->depth > size || memcmp(texts[child->text].data + node->depth, data + node->depth,
                                          child->depth - node->depth) != 0)
            return found;
        if (child->rank != NODE_NONE)
            found = at;
    }
}

static bool append(struct fragment_list *list, struct fragment f)
{
    if (list->n == list->capacity) {
        size_t capacity = list->capacity ? list->capacity * 2 : 16;
        struct fragment *data = realloc(list->data, capacity * sizeof *data);
        if (!data)
            return false;
        list->data = data;
        list->capacity = capacity;
    }
    list->data[list->n++] = f;
    return true;
}

/* The raw text up to `end`, without what was stripped off its ends. */
static bool append_raw(struct splitter *s, uint32_t end)
{
    uint32_t start = s->done;
    while (s->used && start < end && s->used[start])
        start++;
    while (s->used && end > start && s->used[end - 1])
        end--;
    return start == end || append(s->out, (struct fragment){start, end, TOKEN_NONE});
}

static bool append_token(struct splitter *s, struct fragment token)
{
    if (!append_raw(s, token.start) || !append(s->out, token))
        return false;
    s->done = token.end;
    return true;
}

static void claim(struct splitter *s, struct fragment token)
{
    unsigned attribute = s->partition->vocab->attribute[token.id];
    memset(s->used + token.start, 1, token.end - token.start);
    if (attribute & TOKEN_LSTRIP)
        for (uint32_t i = token.start; i > 0 && !s->used[i - 1] && is_blank(s->text.data[i - 1]); i--)
            s->used[i - 1] = true;
    if (attribute & TOKEN_RSTRIP)
        for (uint32_t i = token.end; i < s->text.size && !s->used[i] && is_blank(s->text.data[i]); i++)
            s->used[i] = true;
}

static int compare_fragments(const void *left, const void *right)
{
    const struct fragment *a = left, *b = right;
    return a->start < b->start ? -1 : 1;
}

static struct fragment candidate_fragment(const struct splitter *s, uint64_t candidate)
{
    const struct vocab *v = s->partition->vocab;
    uint32_t id = v->listed[candidate >> 32], start = (uint32_t)candidate;
    return (struct fragment){start, start + (uint32_t)v->text[id].size, (int32_t)id};
}

/* Enters the longest token at the candidate's place that is shorter than it and ends on a free byte. */
static bool retry_shorter(struct splitter *s, uint64_t candidate)
{
    const struct trie *t = s->trie;
    uint32_t start = (uint32_t)candidate, at = t->nodes[t->by_rank[candidate >> 32]].shorter;
    while (at != NODE_NONE && s->used[start + t->nodes[at].depth - 1])
        at = t->nodes[at].shorter;
    return at == NODE_NONE || heap_push(&s->candidates, (uint64_t)t->nodes[at].rank << 32 | start);
}

static bool settle_overlaps(struct splitter *s)
{
    struct fragment_list claimed = {0};
    bool ok = s->used || (s->used = calloc(s->text.size, 1));
    while (ok && s->candidates.n) {
        uint64_t candidate = heap_pop(&s->candidates);
        struct fragment token = candidate_fragment(s, candidate);
        if (s->used[token.start])
            continue;
        if (s->used[token.end - 1]) {
            ok = retry_shorter(s, candidate);
            continue;
        }
        claim(s, token);
        ok = append(&claimed, token);
    }
    if (claimed.n)
        qsort(claimed.data, claimed.n, sizeof *claimed.data, compare_fragments);
    for (size_t i = 0; ok && i < claimed.n; i++)
        ok = append_token(s, claimed.data[i]);
    fragment_list_clear(&claimed);
    return ok;
}

static bool settle_cluster(struct splitter *s)
{
    if (s->candidates.n == 0)
        return true;
    if (s->candidates.n > 1 || s->trie->strips)
        return settle_overlaps(s);
    return append_token(s, candidate_fragment(s, heap_pop(&s->candidates)));
}

/* Stripping may reach over white space to the next token, so that belongs to the cluster, too. */
static void extend_cluster(struct splitter *s, uint32_t end)
{
    if (end <= s->cluster_end)
        return;
    if (s->trie->strips) {
        while (end < s->text.size && is_blank(s->text.data[end]))
            end++;
        end++; /* a token that begins right there touches the white space */
    }
    s->cluster_end = end;
}

static bool split(struct splitter *s)
{
    const struct span *texts = s->partition->vocab->text;
    uint32_t size = (uint32_t)s->text.size;
    for (uint32_t at = 0; at < size; at++) {
        if (!s->trie->starts[(unsigned char)s->text.data[at]])
            continue;
        uint32_t node = longest_token(s->trie, texts, s->text.data + at, size - at);
        if (node == NODE_NONE)
            continue;
        if (at >= s->cluster_end && !settle_cluster(s))
            return false;
        if (!heap_push(&s->candidates, (uint64_t)s->trie->nodes[node].rank << 32 | at))
            return false;
        extend_cluster(s, at + s->trie->nodes[node].depth);
    }
    return settle_cluster(s) && append_raw(s, size);
}

enum status partition_split(const struct partition *p, struct span text, bool parse_special, struct fragment_list *out,
                            struct error *err)
{
    struct splitter s = {.partition = p, .trie = parse_special ? p->all : p->plain, .text = text, .out = out};
    out->n = 0;
    bool ok = true;
    if (s.trie)
        ok = split(&s);
    else if (text.size)
        ok = append(out, (struct fragment){0, (uint32_t)text.size, TOKEN_NONE});
    free(s.used);
    free(s.candidates.data);
    return ok ? STATUS_OK : error_no_memory(err, text.size, "splitting a text");
}

void fragment_list_clear(struct fragment_list *list)
{
    free(list->data);
    *list = (struct fragment_list){0};
}
