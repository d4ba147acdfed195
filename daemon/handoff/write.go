// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package handoff

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/daemon/atomicfile"
	"github.com/koord-rt/koord-rt/daemon/boottime"
	"github.com/koord-rt/koord-rt/model/node"
)

// Writer publishes the parts. One goroutine at a time may use it, one process per run directory.
type Writer struct {
	runDir, stateDir string
	// up is the time since boot, 0 where the machine does not tell.
	up func() time.Duration
	// kept is the strategy payload that stands in the state directory, nil while nobody knows; last is the file that ought to stand there,
	// without payload before there is one.
	kept []byte
	last envelope
}

// ErrNotKept: what was published stands, and its copy for the next boot could not be written.
var ErrNotKept = errors.New("the next boot would not know the strategy")

// NewWriter makes the directories (0700) and cleans what a killed writer left. A copy that an earlier life could not keep is still
// owed. stateDir may be empty, and one that cannot be used costs the copy only: who writes that is told.
func NewWriter(runDir, stateDir string) (*Writer, error) {
	w := &Writer{runDir: runDir, stateDir: stateDir, up: boottime.Now}
	if err := atomicfile.Dir(runDir); err != nil {
		return nil, err
	}
	for _, name := range []string{StrategyFile, DynamicFile, PodsFile} {
		atomicfile.Clean(filepath.Join(runDir, name))
	}
	if stateDir != "" {
		if atomicfile.Dir(stateDir) == nil { // else who writes the copy is told
			atomicfile.Clean(filepath.Join(stateDir, StrategyFile))
		}
		w.kept, w.last = stands(stateDir).Payload, stands(runDir)
	}
	return w, nil
}

// stands is the strategy's file in a directory; without payload where there is none that a reader would take.
func stands(dir string) envelope {
	b, _, err := readBounded(filepath.Join(dir, StrategyFile), signature{}, true)
	if err != nil {
		return envelope{}
	}
	if _, _, err = parseStrategy(b); err != nil {
		return envelope{}
	}
	e, err := parseEnvelope(b)
	if err != nil {
		return envelope{}
	}
	return e
}

// Generation is that of the file of a run directory, whether or not a reader would take what it says; 0 where there is none.
func Generation(runDir, file string) uint64 {
	b, _, err := readBounded(filepath.Join(runDir, file), signature{}, true)
	if err != nil {
		return 0
	}
	var e envelope
	if json.Unmarshal(b, &e) != nil {
		return 0
	}
	return e.Generation
}

// Strategy publishes the strategy. A copy in the state directory is owed then, when it has changed.
func (w *Writer) Strategy(gen uint64, s *strategy.Spec, now time.Time) error {
	payload, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("publish strategy: %w", err)
	}
	e := envelope{Version: Version, Generation: gen, WrittenAt: now, Payload: payload}
	if err := publish(filepath.Join(w.runDir, StrategyFile), e, atomicfile.Write); err != nil {
		return err
	}
	w.last = e
	return nil
}

// Copy is a strategy's file for the state directory, which is a disk: to write it may take long.
type Copy struct {
	dir string
	e   envelope
}

// Owed is the copy that ought to stand in the state directory and does not; nil when it does. Who has it writes it, and tells by Kept how
// that went, before the next is asked for.
func (w *Writer) Owed() *Copy {
	if w.stateDir == "" || len(w.last.Payload) == 0 || bytes.Equal(w.kept, w.last.Payload) {
		return nil
	}
	return &Copy{dir: w.stateDir, e: w.last}
}

// Path is where the copy is to stand.
func (c *Copy) Path() string { return filepath.Join(c.dir, StrategyFile) }

// Write writes the copy so that a power cut does not take it, in any goroutine. Its error is ErrNotKept.
func (c *Copy) Write() error {
	err := atomicfile.Dir(c.dir)
	if err == nil {
		err = publish(c.Path(), c.e, atomicfile.WriteThrough)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotKept, err)
	}
	return nil
}

// Kept takes in how the write of c has ended. After one that has failed nobody knows what stands there: it may have got as far as the name.
func (w *Writer) Kept(c *Copy, err error) {
	w.kept = nil
	if err == nil {
		w.kept = c.e.Payload
	}
}

// Dynamic publishes the dynamic state; d.Expires is when it stops to hold and must be set.
func (w *Writer) Dynamic(gen uint64, d node.Dynamic, now time.Time) error {
	if d.Expires.IsZero() {
		return fmt.Errorf("publish dynamic state: expires is not set")
	}
	quotas, high := wireLoops(&d)
	disks := make(map[string]wireDisk, len(d.DiskLimits))
	for uid, l := range d.DiskLimits {
		disks[uid] = wireDisk(l)
	}
	scores := make(map[string]wireScore, len(d.OOMScores))
	for id, s := range d.OOMScores {
		scores[id] = wireScore(s)
	}
	payload, err := json.Marshal(wireDynamic{
		Quotas: quotas, MemoryHigh: high, OOMScores: scores, DiskLimits: disks, BECPUs: d.BECPUs, BESharesLSR: d.BESharesLSR, BEQuota: d.BEQuota, SharePools: d.SharePools,
		BESharePools: d.BESharePools,
		SystemQoS:    d.SystemQoS, SystemQoSExclusive: d.SystemQoSExclusive, Normalization: d.Normalization,
		Network: node.Network{Missing: clip(d.Network.Missing), Limited: clip(d.Network.Limited)},
	})
	if err != nil {
		return fmt.Errorf("publish dynamic state: %w", err)
	}
	e := envelope{Version: Version, Generation: gen, WrittenAt: now, Expires: d.Expires, Payload: payload}
	if up := w.up(); up > 0 {
		e.ExpiresUp = up + d.Expires.Sub(now)
	}
	return publish(filepath.Join(w.runDir, DynamicFile), e, atomicfile.Write)
}

// Pods publishes the pod cache.
func (w *Writer) Pods(gen uint64, pods map[string]node.PodSpec, now time.Time) error {
	payload, err := json.Marshal(wirePods(pods))
	if err != nil {
		return fmt.Errorf("publish pods: %w", err)
	}
	e := envelope{Version: Version, Generation: gen, WrittenAt: now, Payload: payload}
	return publish(filepath.Join(w.runDir, PodsFile), e, atomicfile.Write)
}

// Lacks reports whether a file that was published is not there any more, nor another one: somebody has cleaned the run directory.
func (w *Writer) Lacks(file string) bool {
	st, err := os.Lstat(filepath.Join(w.runDir, file))
	return errors.Is(err, os.ErrNotExist) || err == nil && !st.Mode().IsRegular()
}

// publish writes a file; write is atomicfile's for the filesystem that it lies on.
func publish(path string, e envelope, write func(path string, data []byte) error) error {
	b, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("publish %s: %w", filepath.Base(path), err)
	}
	if len(b) >= MaxBytes {
		return fmt.Errorf("publish %s: %d bytes are more than readers accept (%d)", filepath.Base(path), len(b), MaxBytes)
	}
	return write(path, append(b, '\n'))
}
