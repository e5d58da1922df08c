// The X11 core protocol, ICCCM (WM_NAME, WM_CLASS) and EWMH 1.5 (_NET_...). Requests are sent in rows and their
// replies read afterwards, so that fifty windows cost no more round trips than one. Every property is
// another program's: it may have any type, format and size, and its window may be gone.
#include "include/CDesktop.h"
#include "libraries.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    // In words of four bytes.
    TEXT_LENGTH = 1024,
    LIST_LENGTH = 16384,
};

enum atom {
    SUPPORTING_WM_CHECK,
    CLIENT_LIST,
    CLIENT_LIST_STACKING,
    ACTIVE_WINDOW,
    CLOSE_WINDOW,
    NET_WM_NAME,
    NET_WM_PID,
    UTF8_STRING,
    COMPOUND_TEXT,
    ATOMS,
};
static const char *const atom_names[ATOMS] = {
    [SUPPORTING_WM_CHECK] = "_NET_SUPPORTING_WM_CHECK",
    [CLIENT_LIST] = "_NET_CLIENT_LIST",
    [CLIENT_LIST_STACKING] = "_NET_CLIENT_LIST_STACKING",
    [ACTIVE_WINDOW] = "_NET_ACTIVE_WINDOW",
    [CLOSE_WINDOW] = "_NET_CLOSE_WINDOW",
    [NET_WM_NAME] = "_NET_WM_NAME",
    [NET_WM_PID] = "_NET_WM_PID",
    [UTF8_STRING] = "UTF8_STRING",
    [COMPOUND_TEXT] = "COMPOUND_TEXT",
};

typedef xcb_get_property_cookie_t property_cookie;
typedef xcb_get_property_reply_t property;

// The replies that the texts of a listed window point into.
struct texts {
    property *net_name, *name, *class_name;
};

struct wd_x {
    int socket;
    xcb_connection_t *connection;
    xcb_window_t root;
    xcb_atom_t atoms[ATOMS];
    struct wd_x_window *windows;
    struct texts *texts;
    size_t count;
};

struct wd_x *wd_x_new(int socket) {
    struct wd_x *x = calloc(1, sizeof *x);
    if (x == NULL) {
        return NULL;
    }
    // xcb closes its own at any failure, while another thread may be about to shut the caller's down.
    x->socket = fcntl(socket, F_DUPFD_CLOEXEC, 0);
    if (x->socket < 0) {
        free(x);
        return NULL;
    }
    return x;
}

static void forget_windows(struct wd_x *x) {
    for (size_t i = 0; i < x->count; i++) {
        free(x->texts[i].net_name);
        free(x->texts[i].name);
        free(x->texts[i].class_name);
    }
    free(x->texts);
    free(x->windows);
    x->texts = NULL;
    x->windows = NULL;
    x->count = 0;
}

void wd_x_free(struct wd_x *x) {
    forget_windows(x);
    if (x->connection != NULL) {
        wd_xcb.xcb_disconnect(x->connection);
    } else {
        close(x->socket);
    }
    free(x);
}

static bool is_lost(const struct wd_x *x) {
    return wd_xcb.xcb_connection_has_error(x->connection) != 0;
}

static void select_property_changes(struct wd_x *x, xcb_window_t window) {
    const uint32_t mask = XCB_EVENT_MASK_PROPERTY_CHANGE;
    wd_xcb.xcb_change_window_attributes(x->connection, window, XCB_CW_EVENT_MASK, &mask);
}

bool wd_x_connect(struct wd_x *x) {
    x->connection = wd_xcb.xcb_connect_to_fd(x->socket, NULL);
    if (is_lost(x)) {
        return false;
    }
    xcb_screen_iterator_t screens = wd_xcb.xcb_setup_roots_iterator(wd_xcb.xcb_get_setup(x->connection));
    if (screens.rem < 1) {
        return false;
    }
    x->root = screens.data->root;
    select_property_changes(x, x->root);
    xcb_intern_atom_cookie_t cookies[ATOMS];
    for (int i = 0; i < ATOMS; i++) {
        cookies[i] = wd_xcb.xcb_intern_atom(x->connection, 0, (uint16_t)strlen(atom_names[i]), atom_names[i]);
    }
    bool all = true;
    for (int i = 0; i < ATOMS; i++) {
        xcb_intern_atom_reply_t *reply = wd_xcb.xcb_intern_atom_reply(x->connection, cookies[i], NULL);
        all = all && reply != NULL;
        x->atoms[i] = reply == NULL ? XCB_ATOM_NONE : reply->atom;
        free(reply);
    }
    return all;
}

static property_cookie ask(struct wd_x *x, xcb_window_t window, xcb_atom_t name, xcb_atom_t type, uint32_t length) {
    return wd_xcb.xcb_get_property(x->connection, 0, window, name, type, 0, length);
}

static property *answer(struct wd_x *x, property_cookie cookie) {
    return wd_xcb.xcb_get_property_reply(x->connection, cookie, NULL);
}

// The 32-bit values of a property; `*count` is 0 when it is missing or something else.
static const uint32_t *numbers(const property *reply, xcb_atom_t type, size_t *count) {
    *count = 0;
    if (reply == NULL || reply->type != type || reply->format != 32) {
        return NULL;
    }
    // What the server says it sent, but no more than came.
    *count = reply->value_len < reply->length ? reply->value_len : reply->length;
    return wd_xcb.xcb_get_property_value(reply);
}

// Reads a property of one number, 0 when there is none.
static uint32_t number(struct wd_x *x, property_cookie cookie, xcb_atom_t type) {
    property *reply = answer(x, cookie);
    size_t count;
    const uint32_t *values = numbers(reply, type, &count);
    uint32_t value = count > 0 ? values[0] : 0;
    free(reply);
    return value;
}

static struct wd_x_text text(const struct wd_x *x, const property *reply) {
    struct wd_x_text text = {.bytes = NULL, .count = 0, .encoding = WD_X_UTF8, .is_cut = false};
    if (reply == NULL || reply->format != 8) {
        return text;
    }
    size_t came = (size_t)reply->length * 4;
    text.bytes = wd_xcb.xcb_get_property_value(reply);
    text.count = reply->value_len < came ? reply->value_len : came;
    text.is_cut = reply->bytes_after > 0;
    if (reply->type == XCB_ATOM_STRING) {
        text.encoding = WD_X_LATIN1;
    } else if (reply->type == x->atoms[COMPOUND_TEXT]) {
        text.encoding = WD_X_COMPOUND_TEXT;
    }
    return text;
}

// WM_CLASS is the instance, NUL, the class, NUL.
static struct wd_x_text second_string(struct wd_x_text both) {
    const uint8_t *end = both.count > 0 ? memchr(both.bytes, 0, both.count) : NULL;
    if (end == NULL) {
        both.count = 0;
        return both;
    }
    both.count -= (size_t)(end + 1 - both.bytes);
    both.bytes = end + 1;
    end = both.count > 0 ? memchr(both.bytes, 0, both.count) : NULL;
    if (end != NULL) {
        both.count = (size_t)(end - both.bytes);
        both.is_cut = false;
    }
    return both;
}

// What is asked about one window.
struct questions {
    property_cookie net_name, name, class_name, pid;
    xcb_get_geometry_cookie_t geometry;
    xcb_translate_coordinates_cookie_t position;
};

static void ask_about(struct wd_x *x, xcb_window_t window, bool follow, struct questions *questions) {
    if (follow) {
        // Before the title is read, so that no change of it is missed.
        select_property_changes(x, window);
    }
    *questions = (struct questions){
        .net_name = ask(x, window, x->atoms[NET_WM_NAME], x->atoms[UTF8_STRING], TEXT_LENGTH),
        .name = ask(x, window, XCB_ATOM_WM_NAME, XCB_GET_PROPERTY_TYPE_ANY, TEXT_LENGTH),
        .class_name = ask(x, window, XCB_ATOM_WM_CLASS, XCB_ATOM_STRING, TEXT_LENGTH),
        .pid = ask(x, window, x->atoms[NET_WM_PID], XCB_ATOM_CARDINAL, 1),
        .geometry = wd_xcb.xcb_get_geometry(x->connection, window),
        .position = wd_xcb.xcb_translate_coordinates(x->connection, window, x->root, 0, 0),
    };
}

// Reads the answers and adds the window to the list, unless it is gone.
static void add_window(struct wd_x *x, xcb_window_t id, bool is_active, const struct questions *questions) {
    struct texts *texts = &x->texts[x->count];
    *texts = (struct texts){
        .net_name = answer(x, questions->net_name),
        .name = answer(x, questions->name),
        .class_name = answer(x, questions->class_name),
    };
    struct wd_x_window *window = &x->windows[x->count];
    x->count += 1;
    *window = (struct wd_x_window){
        .id = id,
        .pid = number(x, questions->pid, XCB_ATOM_CARDINAL),
        .is_active = is_active,
        .title = text(x, texts->net_name),
        .class_name = second_string(text(x, texts->class_name)),
    };
    if (window->title.count == 0) {
        window->title = text(x, texts->name);
    }
    xcb_get_geometry_reply_t *geometry = wd_xcb.xcb_get_geometry_reply(x->connection, questions->geometry, NULL);
    xcb_translate_coordinates_reply_t *position =
        wd_xcb.xcb_translate_coordinates_reply(x->connection, questions->position, NULL);
    if (geometry != NULL && position != NULL) {
        window->x = position->dst_x;
        window->y = position->dst_y;
        window->width = geometry->width;
        window->height = geometry->height;
    } else {
        free(texts->net_name);
        free(texts->name);
        free(texts->class_name);
        x->count -= 1;
    }
    free(geometry);
    free(position);
}

static bool list(struct wd_x *x, const property *ids, xcb_window_t active, bool follow) {
    size_t count;
    const uint32_t *all = numbers(ids, XCB_ATOM_WINDOW, &count);
    if (count > WD_X_WINDOWS) {
        all += count - WD_X_WINDOWS;
        count = WD_X_WINDOWS;
    }
    if (count == 0) {
        return true;
    }
    struct questions *questions = calloc(count, sizeof *questions);
    x->windows = calloc(count, sizeof *x->windows);
    x->texts = calloc(count, sizeof *x->texts);
    bool has_memory = questions != NULL && x->windows != NULL && x->texts != NULL;
    for (size_t i = 0; has_memory && i < count; i++) {
        ask_about(x, all[i], follow, &questions[i]);
    }
    for (size_t i = 0; has_memory && i < count; i++) {
        add_window(x, all[i], all[i] == active, &questions[i]);
    }
    free(questions);
    return has_memory;
}

enum wd_x_result wd_x_windows(struct wd_x *x, bool follow, const struct wd_x_window **windows, size_t *count) {
    forget_windows(x);
    *windows = NULL;
    *count = 0;
    xcb_atom_t check = x->atoms[SUPPORTING_WM_CHECK];
    xcb_window_t manager = number(x, ask(x, x->root, check, XCB_ATOM_WINDOW, 1), XCB_ATOM_WINDOW);
    if (manager == XCB_WINDOW_NONE) {
        return is_lost(x) ? WD_X_LOST : WD_X_NO_MANAGER;
    }
    // It is set on the root before it is set on the manager's own window. One that was killed leaves the first.
    select_property_changes(x, manager);
    property_cookie own = ask(x, manager, check, XCB_ATOM_WINDOW, 1);
    property_cookie stacking = ask(x, x->root, x->atoms[CLIENT_LIST_STACKING], XCB_ATOM_WINDOW, LIST_LENGTH);
    property_cookie mapping = ask(x, x->root, x->atoms[CLIENT_LIST], XCB_ATOM_WINDOW, LIST_LENGTH);
    property_cookie active = ask(x, x->root, x->atoms[ACTIVE_WINDOW], XCB_ATOM_WINDOW, 1);
    bool is_there = number(x, own, XCB_ATOM_WINDOW) == manager;
    property *by_stacking = answer(x, stacking);
    property *by_age = answer(x, mapping);
    xcb_window_t focused = number(x, active, XCB_ATOM_WINDOW);
    bool has_stacking = by_stacking != NULL && by_stacking->type == XCB_ATOM_WINDOW;
    bool has_memory = !is_there || list(x, has_stacking ? by_stacking : by_age, focused, follow);
    free(by_stacking);
    free(by_age);
    if (is_lost(x) || !has_memory) {
        return WD_X_LOST;
    }
    *windows = x->windows;
    *count = x->count;
    return is_there ? WD_X_DONE : WD_X_NO_MANAGER;
}

bool wd_x_send(struct wd_x *x, enum wd_x_message message, uint32_t window) {
    // Source 2: a program that acts for the user, whom the window manager obeys.
    const uint32_t source = 2;
    xcb_client_message_event_t event = {
        .response_type = XCB_CLIENT_MESSAGE,
        .format = 32,
        .window = window,
        .type = x->atoms[message == WD_X_ACTIVATE ? ACTIVE_WINDOW : CLOSE_WINDOW],
    };
    // Data: the source and a time stamp, the other way round for closing; 0 is the present time.
    event.data.data32[message == WD_X_ACTIVATE ? 0 : 1] = source;
    const uint32_t mask = XCB_EVENT_MASK_SUBSTRUCTURE_REDIRECT | XCB_EVENT_MASK_SUBSTRUCTURE_NOTIFY;
    wd_xcb.xcb_send_event(x->connection, 0, x->root, mask, (const char *)&event);
    // An answer shows that what came before it was processed.
    int ignored;
    return wd_x_pointer(x, &ignored, &ignored);
}

// Whether an event is about something that is listed.
static bool matters(const struct wd_x *x, const xcb_generic_event_t *event) {
    // The highest bit: sent by a program, not by the server.
    if ((event->response_type & 0x7f) != XCB_PROPERTY_NOTIFY) {
        return false;
    }
    xcb_atom_t atom = ((const xcb_property_notify_event_t *)event)->atom;
    return atom == x->atoms[SUPPORTING_WM_CHECK] || atom == x->atoms[CLIENT_LIST] ||
           atom == x->atoms[CLIENT_LIST_STACKING] || atom == x->atoms[ACTIVE_WINDOW] ||
           atom == x->atoms[NET_WM_NAME] || atom == XCB_ATOM_WM_NAME;
}

bool wd_x_wait(struct wd_x *x) {
    bool found = false;
    while (!found) {
        // Frees what is not ours as it comes: the server sends each change of the keyboard to all.
        xcb_generic_event_t *event = wd_xcb.xcb_wait_for_event(x->connection);
        if (event == NULL) {
            return false;
        }
        while (event != NULL) {
            found = found || matters(x, event);
            free(event);
            event = wd_xcb.xcb_poll_for_queued_event(x->connection);
        }
    }
    return true;
}

bool wd_x_pointer(struct wd_x *x, int *left, int *top) {
    xcb_query_pointer_reply_t *reply = wd_xcb.xcb_query_pointer_reply(
        x->connection, wd_xcb.xcb_query_pointer(x->connection, x->root), NULL);
    if (reply == NULL) {
        return false;
    }
    *left = reply->root_x;
    *top = reply->root_y;
    free(reply);
    return true;
}

uint32_t *wd_x_keyboard(struct wd_x *x, size_t *count, size_t *spare) {
    const xcb_setup_t *setup = wd_xcb.xcb_get_setup(x->connection);
    size_t codes = (size_t)(setup->max_keycode - setup->min_keycode) + 1;
    xcb_get_keyboard_mapping_reply_t *reply = wd_xcb.xcb_get_keyboard_mapping_reply(
        x->connection, wd_xcb.xcb_get_keyboard_mapping(x->connection, setup->min_keycode, (uint8_t)codes), NULL);
    if (reply == NULL) {
        return NULL;
    }
    // The length of a reply counts four bytes at a time: a keysym.
    size_t width = reply->keysyms_per_keycode;
    uint32_t *keysyms = reply->length >= codes * width ? malloc(codes * width * sizeof *keysyms + 1) : NULL;
    if (keysyms != NULL) {
        const xcb_keysym_t *all = wd_xcb.xcb_get_keyboard_mapping_keysyms(reply);
        *count = *spare = 0;
        for (size_t code = 0; code < codes; code++) {
            size_t before = *count;
            for (size_t i = 0; i < width; i++) {
                if (all[code * width + i] != 0) {
                    keysyms[(*count)++] = all[code * width + i];
                }
            }
            *spare += *count == before;
        }
    }
    free(reply);
    return keysyms;
}
