// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"sigs.k8s.io/yaml"
)

// volume is a directory as the kubelet mounts a ConfigMap (pkg/volume/util/atomic_writer.go of kubernetes): each key is a link to
// ..data/KEY, ..data one to a directory with all of them, and a change makes another directory and renames another link over ..data.
type volume struct {
	dir   string
	swaps int
}

// put makes the volume hold these keys and no others.
func (v *volume) put(keys map[string]string) error {
	v.swaps++
	data, old := filepath.Join(v.dir, "..data"), ""
	if name, err := os.Readlink(data); err == nil {
		old = filepath.Join(v.dir, name)
	}
	name := "..2026_11_26_" + strconv.Itoa(v.swaps)
	if err := os.MkdirAll(filepath.Join(v.dir, name), 0o755); err != nil {
		return err
	}
	for key, text := range keys {
		if err := os.WriteFile(filepath.Join(v.dir, name, key), []byte(text), 0o644); err != nil {
			return err
		}
	}
	next := filepath.Join(v.dir, "..data_tmp")
	if err := os.Symlink(name, next); err != nil {
		return err
	}
	if err := os.Rename(next, data); err != nil {
		return err
	}
	for key := range keys {
		if err := os.Symlink(filepath.Join("..data", key), filepath.Join(v.dir, key)); err != nil && !os.IsExist(err) {
			return err
		}
	}
	links, err := os.ReadDir(v.dir)
	if err != nil {
		return err
	}
	for _, l := range links {
		if _, stays := keys[l.Name()]; !stays && !strings.HasPrefix(l.Name(), "..") {
			if err := os.Remove(filepath.Join(v.dir, l.Name())); err != nil {
				return err
			}
		}
	}
	if old == "" {
		return nil
	}
	return os.RemoveAll(old)
}

// fromConfigMap: koordlet's configuration is a ConfigMap that is mounted. What the strategy in it becomes is in the kernel, whether it
// stands in koordlet.yaml or in a file of its own; one that means nothing leaves the last good one in force and is told; a key that is
// taken away is a strategy that says nothing. Every other key that changes is told, since it needs a restart.
func fromConfigMap(h *alone) {
	own := h.a.config
	v := &volume{dir: h.t.TempDir()}
	put := func(keys map[string]string) {
		h.t.Helper()
		if err := v.put(keys); err != nil {
			h.t.Fatal(err)
		}
	}
	burst := func(percent int) string {
		return fmt.Sprintf("cpuBurstStrategy: {policy: cpuBurstOnly, cpuBurstPercent: %d}\n", percent)
	}
	inside := func(percent int) map[string]string {
		h.t.Helper()
		var strategy any
		if err := yaml.Unmarshal([]byte(burst(percent)), &strategy); err != nil {
			h.t.Fatal(err)
		}
		return map[string]string{"koordlet.yaml": string(h.a.document(strategy))}
	}
	refused := func(broken map[string]string) {
		h.t.Helper()
		said := strings.Count(h.a.log.String(), "the last good one holds")
		put(broken)
		h.eventually(30*time.Second, func() error {
			if strings.Count(h.a.log.String(), "the last good one holds") == said {
				return fmt.Errorf("koordlet does not say that its strategy is refused")
			}
			return nil
		})
		h.a.lives()
	}
	restart := func(keys map[string]string) {
		h.t.Helper()
		h.a.end(syscall.SIGTERM)
		put(keys)
		h.a.start()
	}
	// 50m of CPU are 5000 µs.
	h.a.config = filepath.Join(v.dir, "koordlet.yaml")
	restart(inside(40))
	h.burstOf(30*time.Second, "2000")
	put(inside(60))
	h.burstOf(30*time.Second, "3000")
	refused(map[string]string{"koordlet.yaml": inside(50)["koordlet.yaml"] + "strategy: ["})
	h.burstOf(30*time.Second, "3000")
	put(inside(20))
	h.burstOf(30*time.Second, "1000")
	// Of everything else a restart is asked for, by the keys' names.
	other := strings.Replace(inside(20)["koordlet.yaml"], "kind: KoordletConfig", "kind: KoordletConfig\npprof: true", 1)
	put(map[string]string{"koordlet.yaml": other})
	h.eventually(30*time.Second, func() error {
		const word = "pprof: changed in the file, and taken in by a restart only"
		if !strings.Contains(h.a.log.String(), word) {
			return fmt.Errorf("koordlet does not say that a key needs a restart")
		}
		if out, _ := h.ctl("doctor", "-o", "json"); !strings.Contains(out, word) { // others may be amiss
			return fmt.Errorf("koordctl doctor does not say that a key needs a restart: %s", out)
		}
		return nil
	})
	h.burstOf(30*time.Second, "1000")

	h.extra["strategyFile"] = filepath.Join(v.dir, "strategy.yaml")
	beside := map[string]string{"koordlet.yaml": string(h.a.document(nil))}
	with := func(text string) map[string]string {
		return map[string]string{"koordlet.yaml": beside["koordlet.yaml"], "strategy.yaml": text}
	}
	restart(with(burst(40)))
	h.burstOf(30*time.Second, "2000")
	put(with(burst(60)))
	h.burstOf(30*time.Second, "3000")
	refused(with(burst(60)[:30]))
	h.burstOf(30*time.Second, "3000")
	put(beside)
	h.burstOf(30*time.Second, "0")
	put(with(burst(20)))
	h.burstOf(30*time.Second, "1000")
	h.t.Logf("%d times another ConfigMap", v.swaps)

	h.a.end(syscall.SIGTERM)
	delete(h.extra, "strategyFile")
	h.a.config = own
	h.a.strategy(everywhere)
	h.a.start()
	h.settled()
}
