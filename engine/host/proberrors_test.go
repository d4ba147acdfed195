// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package host

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/kernel/kerneltest"
)

const (
	cdiGPU  = `{"cdiVersion":"0.6.0","kind":"lab.test/gpu","devices":[{"name":"0","containerEdits":{"env":["A=b"]}}]}`
	cdiNews = `{"cdiVersion":"0.6.0","kind":"lab.test/nic","devices":[{"name":"0","containerEdits":{"env":["A=b"]}}]}`
)

// lay writes a file with the directories above it.
func lay(t *testing.T, content string, path ...string) {
	t.Helper()
	file := filepath.Join(path...)
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(content), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// probing is a prober of a fake machine, its registry and the problems that it has told.
func probing(t *testing.T) (p *prober, registry string, told *[]string) {
	t.Helper()
	tree := kerneltest.New(t, "6.12", "/kubepods")
	lay(t, "", tree.Roots.Proc, "self/mountinfo")
	cfg := config.Default().Node
	registry = t.TempDir()
	cfg.Host.CDIDirs = []string{registry}
	cfg.Host.KubeletCPUManagerState, cfg.Host.KubeletMemoryManagerState = filepath.Join(t.TempDir(), "cpu"), filepath.Join(t.TempDir(), "memory")
	told = new([]string)
	p = &prober{roots: tree.Roots, cfg: cfg, log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	if _, err := p.first(t.Context()); err != nil || p.told != "" {
		t.Fatalf("first probe: %v, %s", err, p.told)
	}
	p.follow(func(reason string) { *told = append(*told, reason) })
	return p, registry, told
}

// What is wrong with a node for as long as nobody mends it is told once, and what else changes there is taken in all the same.
func TestErrorsThatLast(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		breaks func(t *testing.T, p *prober, registry string)
		mends  func(p *prober, registry string) error
		says   string
	}{
		"a bad CDI specification": {
			func(t *testing.T, _ *prober, registry string) { lay(t, "{", registry, "bad.json") },
			func(_ *prober, registry string) error { return os.Remove(filepath.Join(registry, "bad.json")) }, "bad.json",
		},
		"a name that two files claim": {
			func(t *testing.T, _ *prober, registry string) {
				many := strings.Replace(cdiGPU, `{"name":"0"`, `{"name":"1","containerEdits":{"env":["A=b"]}},{"name":"2","containerEdits":{"env":["A=b"]}},{"name":"0"`, 1)
				lay(t, many, registry, "one.json")
				lay(t, many, registry, "two.json")
			},
			func(_ *prober, registry string) error {
				return errors.Join(os.Remove(filepath.Join(registry, "one.json")), os.Remove(filepath.Join(registry, "two.json")))
			}, "conflicting device",
		},
		"a registry that is a file": {
			func(t *testing.T, p *prober, registry string) {
				p.cfg.Host.CDIDirs = append(p.cfg.Host.CDIDirs, registry+"/other")
				lay(t, "", registry, "other")
			},
			func(_ *prober, registry string) error { return os.Remove(registry + "/other") }, "list CDI specs",
		},
		"a plain file for a GPU": {
			func(t *testing.T, p *prober, _ string) { lay(t, "", p.roots.Dev, "nvidia0") },
			func(p *prober, _ string) error { return os.Remove(filepath.Join(p.roots.Dev, "nvidia0")) }, "no character device",
		},
		"an RDMA device without a number": {
			func(t *testing.T, p *prober, _ string) {
				lay(t, "what", p.roots.Sys, "class/infiniband_verbs/uverbs0/dev")
			},
			func(p *prober, _ string) error {
				return os.RemoveAll(filepath.Join(p.roots.Sys, "class/infiniband_verbs"))
			}, "uverbs0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, registry, told := probing(t)
			c.breaks(t, p, registry)
			for range 5 {
				p.renew(t.Context())
			}
			if len(*told) != 1 || !strings.Contains((*told)[0], c.says) || strings.Contains((*told)[0], "\n") {
				t.Fatalf("told %q", *told)
			}
			lay(t, cdiNews, registry, "news.json")
			if _, has := p.last.Kernel.CDI["lab.test/nic=0"]; !p.renew(t.Context()) || has {
				t.Error("a new device is no news")
			}
			if _, has := p.last.Kernel.CDI["lab.test/nic=0"]; !has {
				t.Errorf("CDI %v", p.last.Kernel.CDI)
			}
			if err := c.mends(p, registry); err != nil {
				t.Fatal(err)
			}
			if p.renew(t.Context()); p.told != "" || len(*told) != 1 {
				t.Errorf("mended: told %q, then %s", *told, p.told)
			}
			if c.breaks(t, p, registry); p.renew(t.Context()) || len(*told) != 2 {
				t.Errorf("broken again: told %q", *told)
			}
		})
	}
}

// An answer without what every kernel tells is not taken in, and that is told once.
func TestInconclusiveIsNotKept(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file func(p *prober) string
		says string
	}{
		"mounts":   {func(p *prober) string { return filepath.Join(p.roots.Proc, "self/mountinfo") }, "probe inconclusive"},
		"memory":   {func(p *prober) string { return filepath.Join(p.roots.Proc, "meminfo") }, "probe inconclusive"},
		"cgroups":  {func(p *prober) string { return p.roots.Cgroup }, "probe inconclusive"},
		"topology": {func(p *prober) string { return filepath.Join(p.roots.Sys, "devices/system/cpu/online") }, "topology"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, registry, told := probing(t)
			before := p.last
			file := c.file(p)
			if err := os.Rename(file, file+"-away"); err != nil {
				t.Fatal(err)
			}
			lay(t, cdiNews, registry, "news.json")
			for range 3 {
				if p.renew(t.Context()) || len(p.last.Kernel.CDI) != 0 || p.last.Topology != before.Topology {
					t.Fatal("it is taken in")
				}
			}
			if len(*told) != 1 || !strings.Contains((*told)[0], c.says) {
				t.Errorf("told %q", *told)
			}
			if err := os.Rename(file+"-away", file); err != nil {
				t.Fatal(err)
			}
			if !p.renew(t.Context()) || len(p.last.Kernel.CDI) != 1 || p.told != "" {
				t.Errorf("and then: CDI %v, told %q", p.last.Kernel.CDI, p.told)
			}
		})
	}
}

// Half of a checkpoint counts as static at the start. Later it says nothing: sets of running containers would be taken back for it.
func TestHalfACheckpointIsNoNews(t *testing.T) {
	t.Parallel()
	p, _, told := probing(t)
	lay(t, `{"policyN`, p.cfg.Host.KubeletCPUManagerState)
	if p.renew(t.Context()) || p.last.Kernel.KubeletStaticCPU || len(*told) != 1 {
		t.Errorf("static %t, told %q", p.last.Kernel.KubeletStaticCPU, *told)
	}
}

// What the first probe left is told when there is somebody to tell, in one line of bounded length.
func TestFirstProblemIsTold(t *testing.T) {
	t.Parallel()
	p, registry, _ := probing(t)
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		lay(t, "{", registry, strings.Repeat(name, 150)+".json")
	}
	p.problem = nil
	if _, err := p.first(t.Context()); err != nil {
		t.Fatal(err)
	}
	var told []string
	p.follow(func(reason string) { told = append(told, reason) })
	p.renew(t.Context())
	if len(told) != 1 || len(told[0]) > 1010 || !slices.Equal(told, []string{p.told}) {
		t.Errorf("told %q", told)
	}
}

// What a creation finds gone a moment after a probe has the node probed ten seconds after that one, and not at the next interval.
func TestStaleAgainIsProbedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, registry, _ := probing(t)
		lay(t, cdiGPU, registry, "gpu.json")
		p.renew(t.Context())
		p.every, p.again = time.Hour, make(chan struct{}, 1)
		ctx, cancel := context.WithCancel(t.Context())
		var at []time.Duration
		begun := time.Now()
		ended := make(chan error)
		go func() {
			ended <- p.run(ctx, func(engine.Static) { at = append(at, time.Since(begun)) })
		}()
		for _, there := range []bool{false, true} { // gone, and a second later there again
			if there {
				time.Sleep(time.Second)
				lay(t, cdiGPU, registry, "gpu.json")
			} else if err := os.Remove(filepath.Join(registry, "gpu.json")); err != nil {
				t.Fatal(err)
			}
			p.soon()
			synctest.Wait()
		}
		time.Sleep(kubeletEvery)
		synctest.Wait()
		cancel()
		if err := <-ended; err != nil || !slices.Equal(at, []time.Duration{0, kubeletEvery}) {
			t.Errorf("probed after %v, %v", at, err)
		}
	})
}

// What a creation finds gone from the registry has the node probed at once.
func TestStaleIsProbedSoon(t *testing.T) {
	t.Parallel()
	p, registry, _ := probing(t)
	lay(t, cdiGPU, registry, "gpu.json")
	p.renew(t.Context())
	p.every, p.again = time.Hour, make(chan struct{}, 1)
	l := live(p.roots, &p.last.Kernel, p.cfg.Host.CDIDirs, p.soon)
	if _, has := l.CDI()["lab.test/gpu=0"]; !has || len(p.last.Kernel.CDI) != 1 {
		t.Fatalf("registry %v, probed %v", l.CDI(), p.last.Kernel.CDI)
	}
	if err := os.Remove(filepath.Join(registry, "gpu.json")); err != nil {
		t.Fatal(err)
	}
	if got := l.CDI(); got == nil || len(got) != 0 {
		t.Errorf("registry %v", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 3 { // nobody waits, whether there is somebody to hear or not
		l.Stale()
	}
	told := false
	err := p.run(ctx, func(s engine.Static) {
		told = len(s.Kernel.CDI) == 0
		cancel()
	})
	if err != nil || !told {
		t.Errorf("not probed: %v", err)
	}
}
