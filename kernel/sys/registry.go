// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package sys

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/root"
)

// CDIRegistry is the CDI registry at the moment of asking. Its files are read when it is asked first, and again when one of them or a
// directory has changed; else an answer costs a stat of each. It may be asked from any goroutine.
type CDIRegistry struct {
	dirs []string

	mu    sync.Mutex
	seen  []stamp
	names map[string]struct{} // nil: to be read
}

// NewCDIRegistry is the registry in these directories, lowest priority first, or in CDIDirs where none is named, as for the library. Nothing is
// read yet.
func NewCDIRegistry(dirs ...string) *CDIRegistry {
	if len(dirs) == 0 {
		dirs = CDIDirs()
	}
	return &CDIRegistry{dirs: dirs}
}

// Names are the qualified names that a runtime can resolve now, as CDINames has them; nobody writes to them. They are nil where that
// cannot be told: a directory cannot be listed, or descriptors have run out.
func (r *CDIRegistry) Names() map[string]struct{} { return r.at(time.Now()) }

func (r *CDIRegistry) at(now time.Time) map[string]struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.names != nil && unchanged(r.seen) {
		return r.names
	}
	r.names = nil
	seen, err := stamps(r.dirs) // before they are read: what changes meanwhile is seen the next time
	if err != nil {
		return nil
	}
	names, err := CDINames(r.dirs...)
	if root.Exhausted(err) {
		return nil
	}
	if settled(seen, now) {
		r.seen, r.names = seen, names
	}
	return names
}

// stamp tells one content of a path from another. The zero version is that nothing is there.
type stamp struct {
	path string
	version
}

type version struct {
	dev, ino   uint64
	size       int64
	mtim, ctim unix.Timespec
}

func versionOf(path string) (v version) {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return v
	}
	return version{dev: uint64(st.Dev), ino: st.Ino, size: st.Size, mtim: st.Mtim, ctim: st.Ctim} //nolint:unconvert // 32 bits on some architectures
}

// stamps are those of the directories and of their spec files. A file that comes or goes changes its directory.
func stamps(dirs []string) (out []stamp, err error) {
	for _, dir := range dirs {
		out = append(out, stamp{dir, versionOf(dir)})
		files, err := specFiles(dir)
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			out = append(out, stamp{f, versionOf(f)})
		}
	}
	return out, nil
}

func unchanged(seen []stamp) bool {
	for i := range seen {
		if versionOf(seen[i].path) != seen[i].version {
			return false
		}
	}
	return true
}

// settle is well above the resolution of a file's times, a tick of the kernel: 10 ms at most.
const settle = 100 * time.Millisecond

// settled reports whether another write would change a stamp: one within the same tick would not.
func settled(seen []stamp, now time.Time) bool {
	for i := range seen {
		if age := now.Sub(time.Unix(seen[i].ctim.Unix())); age >= 0 && age < settle {
			return false
		}
	}
	return true
}
