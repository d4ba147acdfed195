// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package handoff

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/daemon/boottime"
	"github.com/koord-rt/koord-rt/model/node"
)

// Snapshot is the last good content of every part. It is immutable.
type Snapshot struct {
	// Strategy is the node strategy as published (not yet Effective); nil without an agent.
	Strategy *strategy.Spec
	// StrategyFromState says that it is the state directory's copy.
	StrategyFromState bool
	// Dynamic has Known=false and nothing else when absent or expired.
	Dynamic node.Dynamic
	// Pods is the pod cache by UID; nil without an agent.
	Pods map[string]node.PodSpec
	// Generations of the parts, 0 when absent.
	StrategyGeneration, DynamicGeneration, PodsGeneration uint64
	// Problems are about files whose present content was refused, in the order strategy, its copy, dynamic, pods, and about the run
	// directory itself.
	Problems []Problem
}

// Problem says why a file was refused.
type Problem struct {
	File   string `json:"file"`
	Reason string `json:"reason"`
}

// Options of Read and NewWatcher.
type Options struct {
	// RunDir is required. StateDir may be empty: then there is no copy of an earlier boot.
	RunDir, StateDir string
	// Now is the clock, time.Now when nil, and Up the time since boot, boottime.Now when nil.
	Now func() time.Time
	Up  func() time.Duration
	// Poll is how often the files are looked at without an event, in case one was lost; default 10 s.
	Poll time.Duration
}

// Read reads all parts once.
func Read(o Options) Snapshot {
	p := newParts(o)
	p.refresh(true)
	return p.snapshot(p.now())
}

// signature tells versions of a file apart.
type signature struct {
	ino              uint64
	size             int64
	mtimeNS, ctimeNS int64
}

// part is one file's last good content.
type part[T any] struct {
	path    string
	parse   func([]byte) (T, uint64, error)
	sig     signature
	has     bool
	good    T
	gen     uint64
	problem string
}

// refresh reads the file when it changed, or in any case when forced, and reports whether anything is different. A file
// that was removed is withdrawn; one that cannot be read or parsed leaves the last good content and a problem.
func (p *part[T]) refresh(force bool) bool {
	b, sig, err := readBounded(p.path, p.sig, force)
	switch {
	case errors.Is(err, errSame):
		return false
	case errors.Is(err, os.ErrNotExist):
		changed := p.has || p.problem != ""
		*p = part[T]{path: p.path, parse: p.parse}
		return changed
	case err == nil:
		var good T
		var gen uint64
		if good, gen, err = p.parse(b); err == nil {
			p.has, p.good, p.gen, p.problem, p.sig = true, good, gen, "", sig
			return true
		}
	}
	changed := p.problem != err.Error()
	p.problem, p.sig = err.Error(), sig
	return changed
}

// errSame says that the file is the one read last.
var errSame = errors.New("unchanged")

// readBounded reads a regular file of at most MaxBytes. It does not wait on a FIFO that somebody put in its place.
func readBounded(path string, last signature, force bool) ([]byte, signature, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, signature{}, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, signature{}, fmt.Errorf("stat %s: %w", path, err)
	}
	sig := signature{st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano()}
	switch {
	case !force && sig == last:
		return nil, sig, errSame
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return nil, sig, fmt.Errorf("%w: not a regular file", ErrFormat)
	case st.Size > MaxBytes:
		return nil, sig, fmt.Errorf("%w: longer than %d bytes", ErrFormat, MaxBytes)
	}
	b, err := io.ReadAll(io.LimitReader(f, MaxBytes+1))
	if err != nil {
		return nil, sig, fmt.Errorf("read %s: %w", path, err)
	}
	if len(b) > MaxBytes {
		return nil, sig, fmt.Errorf("%w: longer than %d bytes", ErrFormat, MaxBytes)
	}
	return b, sig, nil
}

// parts is the state behind Read and Watcher.
type parts struct {
	now      func() time.Time
	strategy part[*strategy.Spec]
	copy     part[*strategy.Spec]
	dynamic  part[node.Dynamic]
	pods     part[map[string]node.PodSpec]
	// blind is why no event tells of changes in dir, empty when one does.
	dir, blind string
}

func newParts(o Options) *parts {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Up == nil {
		o.Up = boottime.Now
	}
	p := &parts{
		now:      o.Now,
		dir:      o.RunDir,
		strategy: part[*strategy.Spec]{path: filepath.Join(o.RunDir, StrategyFile), parse: parseStrategy},
		dynamic:  part[node.Dynamic]{path: filepath.Join(o.RunDir, DynamicFile), parse: lasting(o.Now, o.Up)},
		pods:     part[map[string]node.PodSpec]{path: filepath.Join(o.RunDir, PodsFile), parse: parsePods},
	}
	if o.StateDir != "" {
		p.copy = part[*strategy.Spec]{path: filepath.Join(o.StateDir, StrategyFile), parse: parseStrategy}
	}
	return p
}

// lasting is parseDynamic with an end by the clock that nobody sets: a dynamic state is in force for as long as it was meant to, whatever
// has happened to the time of day since it was written, or will since it was read.
func lasting(now func() time.Time, up func() time.Duration) func([]byte) (node.Dynamic, uint64, error) {
	return func(b []byte) (node.Dynamic, uint64, error) {
		d, e, err := parseDynamic(b)
		if err != nil {
			return node.Dynamic{}, 0, err
		}
		read := now()
		d.Expires = read.Add(e.left(read, up()))
		return d, e.Generation, nil
	}
}

// refresh looks at every file.
func (p *parts) refresh(force bool) bool {
	changed := p.refreshStrategy(force)
	changed = p.dynamic.refresh(force) || changed
	return p.pods.refresh(force) || changed
}

func (p *parts) refreshStrategy(force bool) bool {
	changed := p.strategy.refresh(force)
	if p.copy.path != "" && !p.strategy.has {
		changed = p.copy.refresh(force) || changed
	}
	return changed
}

func (p *parts) snapshot(now time.Time) Snapshot {
	s := Snapshot{}
	switch {
	case p.strategy.has:
		s.Strategy, s.StrategyGeneration = p.strategy.good, p.strategy.gen
	case p.copy.has:
		s.Strategy, s.StrategyGeneration, s.StrategyFromState = p.copy.good, p.copy.gen, true
	}
	if p.dynamic.has && now.Before(p.dynamic.good.Expires) {
		s.Dynamic, s.DynamicGeneration = p.dynamic.good, p.dynamic.gen
	}
	if p.pods.has {
		s.Pods, s.PodsGeneration = p.pods.good, p.pods.gen
	}
	add := func(path, reason string) {
		if reason != "" {
			s.Problems = append(s.Problems, Problem{File: path, Reason: reason})
		}
	}
	add(p.strategy.path, p.strategy.problem)
	if !p.strategy.has {
		add(p.copy.path, p.copy.problem)
	}
	add(p.dynamic.path, p.dynamic.problem)
	add(p.pods.path, p.pods.problem)
	add(p.dir, p.blind)
	return s
}
