/* The matcher: a program's sets become bits of one mask per character class, then alternatives are tried at each place,
 * only those that can begin with its character. See pretok.h and pretok_program.h. */
#include "engine/tokenizer/pretok.h"

#include <stdio.h>
#include <string.h>

#include "engine/tokenizer/lenient_utf8.h"
#include "engine/tokenizer/pretok_program.h"

static const struct pretok_row rows[] = {
#define PRE(name, program, flags) {name, &pretok_program_##program, flags},
#include "engine/tokenizer/pretok.def"
#undef PRE
};
enum { N_ROWS = sizeof rows / sizeof rows[0] };

const struct pretok_row *pretok_at(size_t i)
{
    return i < N_ROWS ? &rows[i] : NULL;
}

/* ---- names ---- */

static size_t common_prefix(struct span name, const char *known)
{
    size_t n = 0;
    while (n < name.size && known[n] && name.data[n] == known[n])
        n++;
    return n;
}

enum status pretok_find(struct span name, const struct pretok_row **out, struct error *err)
{
    size_t longest = 0;
    for (size_t i = 0; i < N_ROWS; i++) {
        size_t n = common_prefix(name, rows[i].name);
        if (n == name.size && rows[i].name[n] == 0) {
            *out = &rows[i];
            return STATUS_OK;
        }
        longest = n > longest ? n : longest;
    }
    char quoted[ERROR_QUOTE_BYTES], near[128] = "";
    size_t used = 0;
    for (size_t i = 0; i < N_ROWS && longest >= 2 && used < sizeof near - 32; i++)
        if (common_prefix(name, rows[i].name) == longest)
            used += (size_t)snprintf(near + used, sizeof near - used, "%s%s", used ? ", " : "; nearest: ", rows[i].name);
    return error_set(err, STATUS_UNSUPPORTED, "tokenizer.ggml.pre \"%s\": splitting words in this way is not supported "
                     "(%d names are%s)", error_quote(name.data, name.size, quoted), N_ROWS, near);
}

/* ---- making a program ready ---- */

#define MANY UINT32_MAX

/* A rule whose sets are bits of the class mask; 0: no set. */
struct ready_rule {
    const struct rule *rule;
    uint32_t lead, body, tail, low;
    uint32_t max, tail_max;
};

struct ready_pass {
    enum pass_kind kind;
    struct ready_rule rules[PASS_RULES_MAX];
    uint8_t first[UNICODE_CLASSES]; /* bit i: rule i may match at a character of that class */
};

struct pretok {
    struct unicode_map map;
    uint32_t member[UNICODE_CLASSES]; /* bit i: the class is in set i */
    uint8_t ascii_class[128];
    uint32_t ascii_member[128];
    struct char_set sets[32];
    uint32_t n_sets, n_passes;
    uint32_t blank, newline, number, digit; /* sets that operations use by themselves */
    struct ready_pass passes[PROGRAM_PASSES_MAX];
};

static uint32_t set_bit(struct pretok *t, struct char_set set)
{
    if (set.any == 0)
        return 0;
    uint32_t i = 0;
    while (i < t->n_sets && (t->sets[i].any != set.any || t->sets[i].none != set.none))
        i++;
    if (i == t->n_sets)
        t->sets[t->n_sets++] = set;
    return 1u << i;
}

static void ready_rule_init(struct pretok *t, struct ready_rule *r, const struct rule *rule)
{
    *r = (struct ready_rule){rule, set_bit(t, rule->lead), set_bit(t, rule->body), set_bit(t, rule->tail),
                             set_bit(t, rule->low), rule->max ? rule->max : MANY,
                             rule->tail_max ? rule->tail_max : MANY};
}

static uint32_t first_byte_classes(const struct pretok *t, const struct rule *rule, unsigned class)
{
    if (rule->op == RULE_CONTRACTION)
        return t->ascii_class['\''] == class;
    if (rule->op == RULE_FRAMED)
        return t->ascii_class[(unsigned char)rule->literals[0][0]] == class;
    uint32_t any = 0;
    for (size_t i = 0; rule->op == RULE_LITERAL && rule->literals[i]; i++)
        any |= t->ascii_class[(unsigned char)rule->literals[i][0]] == class;
    return any;
}

static bool may_begin(const struct pretok *t, const struct ready_rule *r, unsigned class)
{
    uint32_t member = t->member[class];
    switch (r->rule->op) {
    case RULE_RUN:
        return member & (r->lead | (r->rule->needs_lead ? 0 : r->body));
    case RULE_CASE:
        return member & (r->lead | r->body | r->low);
    case RULE_PHRASE:
        return member & (r->lead | r->body);
    case RULE_TO_NEWLINE:
    case RULE_BUT_LAST:
    case RULE_TO_END:
    case RULE_POWER_OF_2:
        return member & t->blank;
    case RULE_CONTRACTION:
    case RULE_LITERAL:
    case RULE_FRAMED:
        break;
    }
    return first_byte_classes(t, r->rule, class);
}

static void fill_members(struct pretok *t)
{
    unsigned n_classes;
    const uint32_t *atoms = unicode_class_atoms(&n_classes);
    for (unsigned c = 0; c < n_classes; c++)
        for (uint32_t i = 0; i < t->n_sets; i++)
            if (atoms[c] & t->sets[i].any && !(atoms[c] & t->sets[i].none))
                t->member[c] |= 1u << i;
    for (unsigned c = 0; c < 128; c++) {
        t->ascii_class[c] = (uint8_t)unicode_class(&t->map, c);
        t->ascii_member[c] = t->member[t->ascii_class[c]];
    }
    for (uint32_t p = 0; p < t->n_passes; p++)
        for (unsigned c = 0; c < n_classes; c++)
            for (uint32_t i = 0; i < PASS_RULES_MAX && t->passes[p].rules[i].rule; i++)
                if (may_begin(t, &t->passes[p].rules[i], c))
                    t->passes[p].first[c] |= (uint8_t)(1u << i);
}

const struct pretok *pretok_new(const struct pretok_program *program, struct arena *a)
{
    struct pretok *t = arena_alloc(a, sizeof *t);
    if (!t || !unicode_map_init(&t->map, a))
        return NULL;
    t->blank = set_bit(t, (struct char_set){ATOM_WS, 0});
    t->newline = set_bit(t, (struct char_set){ATOM_CR | ATOM_NL, 0});
    t->number = set_bit(t, (struct char_set){ATOM_N, 0});
    t->digit = set_bit(t, (struct char_set){ATOM_AD, 0});
    t->n_passes = program->n_passes;
    for (uint32_t p = 0; p < t->n_passes; p++) {
        t->passes[p].kind = program->passes[p].kind;
        for (uint32_t i = 0; i < program->passes[p].n_rules; i++)
            ready_rule_init(t, &t->passes[p].rules[i], &program->passes[p].rules[i]);
    }
    fill_members(t);
    return t;
}

/* ---- matching ---- */

struct scan {
    const struct pretok *t;
    const char *text;
    pretok_word *word;
    void *context;
};

/* The white space run that was looked at last, so that alternatives and steps do not walk it again. */
struct blanks {
    size_t start, end; /* valid for places in [start, end) */
    size_t last;       /* start of its last character */
    size_t line_end;   /* behind its last CR or LF; 0: none */
};

struct segment {
    const struct pretok *t;
    const char *text;
    size_t end;
    struct blanks blanks;
};

static inline uint32_t member_at(const struct pretok *t, const char *p, size_t *size)
{
    if ((unsigned char)*p < 0x80) {
        *size = 1;
        return t->ascii_member[(unsigned char)*p];
    }
    return t->member[unicode_class(&t->map, lenient_character(p, size))];
}

static inline unsigned class_at(const struct pretok *t, const char *p, size_t *size)
{
    if ((unsigned char)*p < 0x80) {
        *size = 1;
        return t->ascii_class[(unsigned char)*p];
    }
    return unicode_class(&t->map, lenient_character(p, size));
}

/* End of the run of characters in `set` from `at`, at most `max` of them. */
static inline size_t run_end(const struct segment *s, size_t at, uint32_t set, uint32_t max)
{
    for (size_t size; max > 0 && at < s->end && member_at(s->t, s->text + at, &size) & set; max--)
        at += size;
    return at;
}

/* Alternatives return the end of their match, or `at` if they do not match. */

static size_t contraction_end(const struct segment *s, size_t at, bool either_case)
{
    const char *p = s->text + at;
    size_t left = s->end - at;
    char lower = either_case ? 0x20 : 0;
    if (left < 2 || p[0] != '\'')
        return at;
    char a = p[1] >= 'A' && p[1] <= 'Z' ? (char)(p[1] | lower) : p[1];
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return at + 2;
    if (left < 3)
        return at;
    char b = p[2] >= 'A' && p[2] <= 'Z' ? (char)(p[2] | lower) : p[2];
    bool two = (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l');
    return two ? at + 3 : at;
}

static inline size_t run_body(const struct segment *s, const struct ready_rule *r, size_t at)
{
    const struct rule *rule = r->rule;
    size_t end = run_end(s, at, r->body, r->max);
    if (end == at || (rule->min > 1 && run_end(s, at, r->body, rule->min - 1) == end))
        return at;
    if (r->tail)
        end = run_end(s, end, r->tail, r->tail_max);
    return rule->contraction ? contraction_end(s, end, true) : end;
}

static inline size_t run_match(const struct segment *s, const struct ready_rule *r, size_t at, uint32_t member,
                               size_t size)
{
    if (r->lead & member) {
        size_t end = run_body(s, r, at + size);
        if (end > at + size)
            return end;
    }
    return r->rule->needs_lead ? at : run_body(s, r, at);
}

/* Upper-case letters up to a lower-case one (letters outside ASCII are both), then all lower-case ones. */
static size_t case_mixed(const struct segment *s, const struct ready_rule *r, size_t at)
{
    size_t low_end = at, place = at, size;
    while (place < s->end) {
        uint32_t member = member_at(s->t, s->text + place, &size);
        if (member & r->low)
            low_end = place + size;
        if (!(member & r->body))
            break;
        place += size;
    }
    return low_end == at ? at : run_end(s, low_end, r->low, MANY);
}

static size_t case_upper(const struct segment *s, const struct ready_rule *r, size_t at)
{
    size_t end = run_end(s, at, r->body, MANY);
    return end == at ? at : run_end(s, end, r->low, MANY);
}

/* Mixed words win over upper-case ones, with lead over without. */
static size_t case_match(const struct segment *s, const struct ready_rule *r, size_t at, uint32_t member, size_t size)
{
    static size_t (*const forms[])(const struct segment *, const struct ready_rule *, size_t) = {case_mixed, case_upper};
    for (size_t i = 0; i < 2; i++) {
        size_t end = r->lead & member ? forms[i](s, r, at + size) : at + size;
        if (end == at + size)
            end = forms[i](s, r, at);
        if (end > at)
            return r->rule->contraction ? contraction_end(s, end, true) : end;
    }
    return at;
}

static const struct blanks *blanks_at(struct segment *s, size_t at)
{
    struct blanks *b = &s->blanks;
    if (at >= b->start && at < b->end)
        return b;
    *b = (struct blanks){at, at, at, 0};
    size_t size;
    uint32_t member;
    while (b->end < s->end && (member = member_at(s->t, s->text + b->end, &size)) & s->t->blank) {
        b->last = b->end;
        b->end += size;
        if (member & s->t->newline)
            b->line_end = b->end;
    }
    return b;
}

static size_t power_of_2_match(struct segment *s, size_t at)
{
    size_t end = run_end(s, at, s->t->blank, 513), n = 0, size;
    for (size_t i = at; i < end; i += size, n++)
        member_at(s->t, s->text + i, &size);
    if (n > 0 && end < s->end)
        n--; /* something follows, white space or not: the run's last character is left to it */
    uint32_t power = 1;
    while (power < 512 && power * 2 <= n)
        power *= 2;
    return run_end(s, at, s->t->blank, power);
}

static size_t phrase_body(const struct segment *s, const struct ready_rule *r, size_t at)
{
    size_t size, next;
    if (at == s->end || !(member_at(s->t, s->text + at, &size) & r->body))
        return at;
    while (at < s->end) {
        if (member_at(s->t, s->text + at, &size) & r->tail)
            at += size;
        else if (s->text[at] == ' ' && at + 1 < s->end && member_at(s->t, s->text + at + 1, &next) & r->body)
            at += 1 + next;
        else
            break;
    }
    return at;
}

static size_t phrase_match(const struct segment *s, const struct ready_rule *r, size_t at, uint32_t member, size_t size)
{
    if (r->lead & member) {
        size_t end = phrase_body(s, r, at + size);
        if (end > at + size)
            return end;
    }
    return phrase_body(s, r, at);
}

static bool has_literal(const struct segment *s, size_t at, const char *literal)
{
    size_t n = strlen(literal);
    return n <= s->end - at && memcmp(s->text + at, literal, n) == 0;
}

static size_t literal_match(const struct segment *s, const struct rule *rule, size_t at)
{
    for (size_t i = 0; rule->literals[i]; i++)
        if (has_literal(s, at, rule->literals[i]))
            return at + strlen(rule->literals[i]);
    return at;
}

static size_t framed_match(const struct segment *s, const struct ready_rule *r, size_t at)
{
    const struct rule *rule = r->rule;
    if (!has_literal(s, at, rule->literals[0]))
        return at;
    size_t first = at + strlen(rule->literals[0]), end = first;
    while (end < s->end && end - first < r->max && s->text[end] && strchr(rule->literals[1], s->text[end]))
        end++;
    return end > first && has_literal(s, end, rule->literals[2]) ? end + strlen(rule->literals[2]) : at;
}

static size_t rule_match(struct segment *s, const struct ready_rule *r, size_t at, uint32_t member, size_t size)
{
    const struct blanks *b;
    switch (r->rule->op) {
    case RULE_RUN:
        return run_match(s, r, at, member, size);
    case RULE_CONTRACTION:
        return contraction_end(s, at, r->rule->either_case);
    case RULE_CASE:
        return case_match(s, r, at, member, size);
    case RULE_TO_NEWLINE:
        b = blanks_at(s, at);
        return b->line_end > at ? b->line_end : at;
    case RULE_BUT_LAST:
        b = blanks_at(s, at);
        return b->end == s->end ? b->end : b->last;
    case RULE_TO_END:
        b = blanks_at(s, at);
        return b->end == s->end ? b->end : at;
    case RULE_POWER_OF_2:
        return power_of_2_match(s, at);
    case RULE_PHRASE:
        return phrase_match(s, r, at, member, size);
    case RULE_LITERAL:
        return literal_match(s, r->rule, at);
    case RULE_FRAMED:
        break;
    }
    return framed_match(s, r, at);
}

/* ---- passes ---- */

static bool split_from(const struct scan *c, uint32_t pass, size_t start, size_t end);

static inline bool deliver(const struct scan *c, uint32_t pass, size_t start, size_t end)
{
    if (start == end)
        return true;
    return pass + 1 == c->t->n_passes ? c->word(c->context, start, end) : split_from(c, pass + 1, start, end);
}

/* Characters that no alternative takes stay together up to the next match. */
static bool split_by_rules(const struct scan *c, uint32_t pass, size_t start, size_t end)
{
    const struct ready_pass *p = &c->t->passes[pass];
    struct segment s = {c->t, c->text, end, {0}};
    size_t at = start;
    while (at < end) {
        size_t size, match = at;
        unsigned class = class_at(c->t, c->text + at, &size);
        for (unsigned rules = p->first[class]; rules && match == at; rules &= rules - 1)
            match = rule_match(&s, &p->rules[__builtin_ctz(rules)], at, c->t->member[class], size);
        if (match == at) {
            at += size;
            continue;
        }
        if (!deliver(c, pass, start, at) || !deliver(c, pass, at, match))
            return false;
        start = at = match;
    }
    return deliver(c, pass, start, end);
}

/* Cuts behind the first 1 to 3 characters of each run of numbers, then behind each 3: never in front of a run. */
static bool split_digits_glued(const struct scan *c, uint32_t pass, size_t start, size_t end)
{
    struct segment s = {c->t, c->text, end, {0}};
    size_t size;
    for (size_t at = start; at < end;) {
        size_t run = run_end(&s, at, c->t->number, MANY), n = 0;
        if (run == at) {
            member_at(c->t, c->text + at, &size);
            at += size;
            continue;
        }
        for (size_t i = at; i < run; i += size, n++)
            member_at(c->t, c->text + i, &size);
        for (uint32_t group = n % 3 ? (uint32_t)(n % 3) : 3; at < run; group = 3) {
            at = run_end(&s, at, c->t->number, group);
            if (!deliver(c, pass, start, at))
                return false;
            start = at;
        }
    }
    return deliver(c, pass, start, end);
}

/* Cuts before each digit that is a multiple of three away from its run's end; nothing else is cut. */
static bool split_digits_from_end(const struct scan *c, uint32_t pass, size_t start, size_t end)
{
    struct segment s = {c->t, c->text, end, {0}};
    for (size_t at = start; at < end;) {
        size_t run = run_end(&s, at, c->t->digit, MANY), size = 1;
        if (run == at) {
            member_at(c->t, c->text + at, &size);
            at += size;
            continue;
        }
        for (; at < run; at++) {
            if ((run - at) % 3 == 0) {
                if (!deliver(c, pass, start, at))
                    return false;
                start = at;
            }
        }
    }
    return deliver(c, pass, start, end);
}

static bool split_from(const struct scan *c, uint32_t pass, size_t start, size_t end)
{
    switch (c->t->passes[pass].kind) {
    case PASS_DIGITS_GLUED:
        return split_digits_glued(c, pass, start, end);
    case PASS_DIGITS_FROM_END:
        return split_digits_from_end(c, pass, start, end);
    case PASS_RULES:
        break;
    }
    return split_by_rules(c, pass, start, end);
}

bool pretok_split(const struct pretok *p, struct span text, pretok_word *word, void *context)
{
    struct scan c = {p, text.data, word, context};
    return text.size == 0 || split_from(&c, 0, 0, text.size);
}
