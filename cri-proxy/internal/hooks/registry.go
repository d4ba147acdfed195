// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package hooks

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/koord-rt/koord-rt/adapt/hook"
	"github.com/koord-rt/koord-rt/adapt/unary"
	"github.com/koord-rt/koord-rt/api/config"
)

// DefaultPoll is how often the directory is read without an event, as upstream does.
const DefaultPoll = time.Minute

// Options of a Registry.
type Options struct {
	// Config is required: the directory, marks, merging and timeouts.
	Config config.ProxyHooks
	// Poll is the time between readings without an event; 0 is DefaultPoll.
	Poll time.Duration
	// Pause is for how long a server that hangs is left alone; 0 is 30 s.
	Pause time.Duration
	// Observe is told of each call's end; it must be quick and may be called from several goroutines. Optional.
	Observe func(Call)
}

// Problem is a file of the directory that could not be used as it stands, or what is wrong with the directory itself.
type Problem struct{ File, Reason string }

// String is "file: reason".
func (p Problem) String() string { return p.File + ": " + p.Reason }

// Snapshot is what is registered, by name. Whoever gets one must not change it.
type Snapshot struct {
	Servers  []Server
	Problems []Problem
}

// server is a Server and how to reach it.
type server struct {
	Server
	client  *unary.Client
	breaker *breaker
}

// place is one name's place; whoever has the name elsewhere has done nothing wrong yet.
type place struct {
	name string
	at   Endpoint
}

// state is what calls read; it is replaced as a whole.
type state struct {
	Snapshot
	servers []server
	wants   hook.Set
}

// entry is a file's last reading and the last good server of it.
type entry struct {
	data   []byte
	read   bool
	good   bool
	server Server
	notes  []string
	err    error
}

// Registry holds the registered hook servers and calls them. Its methods may be called from several goroutines, Run from
// one.
type Registry struct {
	o    Options
	last atomic.Pointer[state]

	// mu orders readings of the directory; calls do not take it.
	mu      sync.Mutex
	entries map[string]*entry
	clients map[Endpoint]*unary.Client
	// breakers outlive changes of a file that leave the server where it is.
	breakers map[place]*breaker
}

// New reads the directory once. A directory that is missing or unreadable is a problem in the snapshot, not an error: the
// proxy serves without hook servers.
func New(o Options) *Registry {
	if o.Poll <= 0 {
		o.Poll = DefaultPoll
	}
	if o.Pause <= 0 {
		o.Pause = defaultPause
	}
	r := &Registry{o: o, entries: map[string]*entry{}, clients: map[Endpoint]*unary.Client{}, breakers: map[place]*breaker{}}
	r.last.Store(&state{})
	r.refresh("")
	return r
}

// Close lets go of the connections; the registry must not be used any more.
func (r *Registry) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.clients {
		c.Close()
	}
}

// Snapshot is what is registered now.
func (r *Registry) Snapshot() Snapshot { return r.last.Load().Snapshot }

// Wants reports whether any hook server is registered for a hook. It does not allocate.
func (r *Registry) Wants(k hook.Kind) bool { return r.last.Load().wants.Has(k) }

// Any reports whether any hook server is registered.
func (r *Registry) Any() bool { return r.last.Load().wants != 0 }

// Skips reports a pod that is a hook server itself: it carries the mark of the configuration as a label, as upstream's
// code reads it, or as an annotation, as the text of upstream's flag says.
func (r *Registry) Skips(labels, annotations map[string]string) bool {
	key, value := r.o.Config.ServerKey, r.o.Config.ServerValue
	if v, ok := labels[key]; ok && v == value {
		return true
	}
	v, ok := annotations[key]
	return ok && v == value
}

// refresh reads the directory and reports whether what is registered, or wrong, has changed. blind is why no event tells of
// changes, empty when one does.
func (r *Registry) refresh(blind string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := r.scan()
	if blind != "" {
		next.Problems = append(next.Problems, Problem{r.o.Config.Dir, blind})
	}
	before := r.last.Load()
	if slices.Equal(before.Servers, next.Servers) && slices.Equal(before.Problems, next.Problems) {
		return false
	}
	r.connect(next)
	r.last.Store(next)
	r.drop(next)
	return true
}

// scan reads every file and keeps the last good content of those that are there and broken.
func (r *Registry) scan() *state {
	next := &state{}
	dir := r.o.Config.Dir
	if dir == "" {
		return next
	}
	names, err := r.list(dir)
	if err != nil {
		next.Problems = append(next.Problems, Problem{dir, err.Error()})
		if !errors.Is(err, fs.ErrNotExist) {
			names = slices.Sorted(func(yield func(string) bool) { // unreadable is not empty
				for base := range r.entries {
					if !yield(base) {
						return
					}
				}
			})
		}
	}
	for base := range r.entries {
		if !slices.Contains(names, base) {
			delete(r.entries, base)
		}
	}
	for _, base := range names {
		r.take(next, dir, base)
	}
	return next
}

// list names the configuration files, sorted.
func (r *Registry) list(dir string) ([]string, error) {
	found, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range found {
		if _, ok := serverName(e.Name()); ok && !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// take reads one file into next.
func (r *Registry) take(next *state, dir, base string) {
	name, _ := serverName(base)
	path := filepath.Join(dir, base)
	switch {
	case !goodName(name):
		next.Problems = append(next.Problems, Problem{path, fmt.Sprintf("not read: want a name of at most %d letters, digits, . _ and -", maxName)})
		return
	case len(next.Servers) == maxServers:
		next.Problems = append(next.Problems, Problem{path, fmt.Sprintf("not read: more than %d hook servers", maxServers)})
		return
	}
	e := r.entries[base]
	if e == nil {
		e = &entry{}
		r.entries[base] = e
	}
	data, err := readFile(path)
	if errors.Is(err, fs.ErrNotExist) { // gone since the listing, or a dangling link
		delete(r.entries, base)
		return
	}
	e.load(data, err, r.o.Config.AllowRemote)
	if e.err != nil {
		reason := e.err.Error()
		if e.good {
			reason += "; the last good content stays in force"
		}
		next.Problems = append(next.Problems, Problem{path, reason})
	}
	for _, note := range e.notes {
		next.Problems = append(next.Problems, Problem{path, note})
	}
	if e.good {
		s := e.server
		s.Name, s.File, s.Merge = name, path, r.o.Config.MergeOf(name)
		next.Servers = append(next.Servers, s)
	}
}

// load takes a reading; the same bytes are not parsed again.
func (e *entry) load(data []byte, readErr error, allowRemote bool) {
	if readErr != nil {
		e.err, e.read = readErr, false
		return
	}
	if e.read && bytes.Equal(e.data, data) {
		return
	}
	e.data, e.read = data, true
	s, notes, err := parse(data, allowRemote)
	if e.err = err; err == nil {
		e.good, e.server, e.notes = true, s, notes
	}
}

// connect gives every server its client; servers of one endpoint share it.
func (r *Registry) connect(next *state) {
	for _, s := range next.Servers {
		c := r.clients[s.Endpoint]
		if c == nil {
			c = unary.New(s.Endpoint.Network, s.Endpoint.Address, hook.MaxMessage)
			r.clients[s.Endpoint] = c
		}
		at := place{s.Name, s.Endpoint}
		b := r.breakers[at]
		if b == nil {
			b = &breaker{}
			r.breakers[at] = b
		}
		next.servers = append(next.servers, server{s, c, b})
		next.wants |= s.Hooks
	}
}

// drop lets go of clients that nobody is registered for. A call in flight ends as it would have.
func (r *Registry) drop(now *state) {
	for at := range r.breakers {
		if !slices.ContainsFunc(now.Servers, func(s Server) bool { return at == place{s.Name, s.Endpoint} }) {
			delete(r.breakers, at)
		}
	}
	for endpoint, c := range r.clients {
		if !slices.ContainsFunc(now.Servers, func(s Server) bool { return s.Endpoint == endpoint }) {
			c.Close()
			delete(r.clients, endpoint)
		}
	}
}
