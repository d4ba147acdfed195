// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/test/lab/host"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
	"github.com/koord-rt/koord-rt/test/lab/parts"
	"github.com/koord-rt/koord-rt/test/lab/vmparts"
)

// TestCompatContainerdTooOld: Debian 13's containerd 1.7.24 has NRI and is older than what koord-nri works with. koord-nri says so
// everywhere, and neither what runs nor what is created meanwhile differs from what it is without koord-nri. Once containerd is
// replaced, it connects by itself and does its work.
func TestCompatContainerdTooOld(t *testing.T) {
	cache, err := parts.Open(parts.Options{Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	store, err := vmparts.Open(cache)
	if err != nil {
		t.Fatal(err)
	}
	old, err := store.ContainerdTooOld(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, rigOptions{containerd: parts.Containerd17, nri: host.Options{Bin: old, Cache: cache}})
	running := []*kubelet.Running{r.pod(lsPod("old-ls")), r.pod(bePod("old-be")), r.pod(lsrPod("old-lsr"))}
	alone := r.portray(bePod("old-new"))
	before := r.treesOf(running)
	if err := os.WriteFile(r.config, r.configText(standard, nil), 0o600); err != nil {
		t.Fatal(err)
	}
	r.launch()
	r.eventually(10*time.Second, func() error {
		if n := strings.Count(r.log.String(), "is older than 1.7.27"); n < 2 {
			return fmt.Errorf("the log says %d times that the runtime is too old, want twice: it is asked again", n)
		}
		return nil
	})
	r.refusesRuntime()
	r.identical("a pod beside a refused runtime", alone, r.portray(bePod("old-new")))
	r.identical("pods beside a refused runtime", before, r.treesOf(running))
	if n := r.metric("koord_rt_nri_writes_total"); n != 0 {
		t.Errorf("%v values were written for a refused runtime", n)
	}

	if r.host.Bin, err = cache.Get(t.Context(), parts.Containerd17); err != nil {
		t.Fatal(err)
	}
	if err := r.host.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.synced()
	_, rest := cpus()
	for i, want := range [][]string{wants("LS", rest), wants("BE", rest), wants("LSR", "")} {
		r.soon(5*time.Second, running[i], want)
	}
	r.now(r.pod(bePod("new-be")), wants("BE", rest))
}

// refusesRuntime fails unless doctor, features and the metrics tell that the runtime is not worked with, and why.
func (r *rig) refusesRuntime() {
	r.t.Helper()
	const why = "is older than 1.7.27"
	r.eventually(8*time.Second, func() error {
		out, err := r.ctl("doctor", "--nri-socket", r.host.NRISocket)
		for line := range strings.Lines(out) {
			if text := strings.Join(strings.Fields(line), " "); strings.HasPrefix(text, "FAIL runtime containerd 1.7.24") && strings.Contains(text, "unsupported") && strings.Contains(text, why) {
				if err == nil {
					return errors.New("doctor ends with 0")
				}
				return nil
			}
		}
		return fmt.Errorf("doctor does not fail the runtime (%v):\n%s", err, out)
	})
	out, err := r.ctl("features")
	text := strings.Join(strings.Fields(out), " ")
	for _, f := range protocol.Features() {
		if !strings.Contains(text, f.String()+" unsupported the runtime is unsupported: containerd 1.7.24~ds1 "+why) {
			r.t.Errorf("features does not say that %s does not work with this runtime (%v):\n%s", f, err, out)
		}
	}
	if n := r.metric("koord_rt_nri_connected"); n != 0 {
		r.t.Error("koord-nri counts as connected")
	}
}
