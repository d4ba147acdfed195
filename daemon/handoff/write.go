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
	// ready: the state directory is there and closed to others.
	ready bool
	// kept is the strategy payload that stands in the state directory, which is a disk; owed is the file that ought to stand there, nil
	// when it does.
	kept []byte
	owed *envelope
}

// ErrNotKept: what was published stands, and its copy for the next boot could not be written. Keep tries again.
var ErrNotKept = errors.New("the next boot would not know the strategy")

// NewWriter makes the directories (0700) and cleans what a killed writer left. A copy that an earlier life could not keep is still
// owed. stateDir may be empty, and one that cannot be used costs the copy only: Keep tells and tries again.
func NewWriter(runDir, stateDir string) (*Writer, error) {
	w := &Writer{runDir: runDir, stateDir: stateDir, up: boottime.Now}
	if err := atomicfile.Dir(runDir); err != nil {
		return nil, err
	}
	for _, name := range []string{StrategyFile, DynamicFile, PodsFile} {
		atomicfile.Clean(filepath.Join(runDir, name))
	}
	if stateDir != "" {
		if w.open() == nil { // else Keep tells
			atomicfile.Clean(filepath.Join(stateDir, StrategyFile))
		}
		w.kept = stands(stateDir).Payload
		if e := stands(runDir); len(e.Payload) > 0 && !bytes.Equal(w.kept, e.Payload) {
			w.owed = &e
		}
	}
	return w, nil
}

// open makes the state directory, once.
func (w *Writer) open() error {
	if w.ready {
		return nil
	}
	err := atomicfile.Dir(w.stateDir)
	w.ready = err == nil
	return err
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

// Strategy publishes the strategy and keeps a copy in the state directory when it changed. A copy that fails is ErrNotKept.
func (w *Writer) Strategy(gen uint64, s *strategy.Spec, now time.Time) error {
	payload, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("publish strategy: %w", err)
	}
	e := envelope{Version: Version, Generation: gen, WrittenAt: now, Payload: payload}
	if err := publish(filepath.Join(w.runDir, StrategyFile), e); err != nil {
		return err
	}
	w.owed = nil
	if w.stateDir != "" && !bytes.Equal(w.kept, payload) {
		w.owed = &e
	}
	return w.Keep()
}

// Keep writes the copy in the state directory where that is owed.
func (w *Writer) Keep() error {
	if w.owed == nil {
		return nil
	}
	err := w.open()
	if err == nil {
		err = publish(filepath.Join(w.stateDir, StrategyFile), *w.owed)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotKept, err)
	}
	w.kept, w.owed = w.owed.Payload, nil
	return nil
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
	return publish(filepath.Join(w.runDir, DynamicFile), e)
}

// Pods publishes the pod cache.
func (w *Writer) Pods(gen uint64, pods map[string]node.PodSpec, now time.Time) error {
	payload, err := json.Marshal(wirePods(pods))
	if err != nil {
		return fmt.Errorf("publish pods: %w", err)
	}
	return publish(filepath.Join(w.runDir, PodsFile), envelope{Version: Version, Generation: gen, WrittenAt: now, Payload: payload})
}

// Lacks reports whether a file that was published is not there any more: somebody has cleaned the run directory.
func (w *Writer) Lacks(file string) bool {
	_, err := os.Lstat(filepath.Join(w.runDir, file))
	return errors.Is(err, os.ErrNotExist)
}

func publish(path string, e envelope) error {
	b, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("publish %s: %w", filepath.Base(path), err)
	}
	if len(b) >= MaxBytes {
		return fmt.Errorf("publish %s: %d bytes are more than readers accept (%d)", filepath.Base(path), len(b), MaxBytes)
	}
	return atomicfile.Write(path, append(b, '\n'))
}
