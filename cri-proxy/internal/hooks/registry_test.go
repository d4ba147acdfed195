// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package hooks_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/adapt/hook"
	"github.com/koord-rt/koord-rt/adapt/hook/hooktest"
	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/hooks"
	"github.com/koord-rt/koord-rt/kernel/kerneltest"
)

func names(s hooks.Snapshot) string {
	var out []string
	for i := range s.Servers {
		out = append(out, s.Servers[i].Name+"="+s.Servers[i].Endpoint.String())
	}
	return strings.Join(out, " ")
}

func problems(s hooks.Snapshot) string {
	var b strings.Builder
	for _, p := range s.Problems {
		fmt.Fprintln(&b, p)
	}
	return b.String()
}

// What koordlet 1.8.0 writes, and what upstream's proxy makes of it.
func TestRegistered(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	hooktest.Write(t, dir, "koordlet.json", "{\n\t\"remote-endpoint\": \"/var/run/koordlet/koordlet.sock\",\n\t\"failure-policy\": \"Ignore\",\n"+
		"\t\"runtime-hooks\": [\n\t\t\"PreRunPodSandbox\",\n\t\t\"PreRemoveRunPodSandbox\"\n\t]\n}")
	register(t, dir, "b", "localhost:5", "Fail", hook.PreCreateContainer, hook.PostStopContainer)
	hooktest.Write(t, dir, "unknown.json", `{"remote-endpoint":"unix:///x","runtime-hooks":["PreFly","PreStartContainer"],"later":1}`)
	hooktest.Write(t, dir, "notes.txt", "no JSON")
	hooktest.Write(t, dir, ".hidden.json", "no JSON")
	if err := os.Mkdir(filepath.Join(dir, "d.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	r := open(t, dir, func(o *hooks.Options) { o.Config.Servers = map[string]config.HookMerge{"b": config.HookReplaces} })
	s := r.Snapshot()
	if got := names(s); got != "b=tcp://localhost:5 koordlet=unix:///var/run/koordlet/koordlet.sock unknown=unix:///x" {
		t.Fatal(got)
	}
	b, koordlet, unknown := s.Servers[0], s.Servers[1], s.Servers[2]
	if b.Policy != hooks.PolicyFail || b.Merge != config.HookReplaces || !b.Hooks.Has(hook.PostStopContainer) || b.Hooks.Has(hook.PreRunPodSandbox) {
		t.Errorf("b = %+v", b)
	}
	if koordlet.Policy != hooks.PolicyIgnore || koordlet.Merge != config.HookYields || koordlet.Hooks != hook.Set(0).With(hook.PreRunPodSandbox) {
		t.Errorf("koordlet = %+v", koordlet)
	}
	if unknown.Policy != hooks.PolicyIgnore || !unknown.Hooks.Has(hook.PreStartContainer) {
		t.Errorf("unknown = %+v", unknown)
	}
	if got := problems(s); strings.Count(got, "\n") != 1 || !strings.Contains(got, "unknown.json") || !strings.Contains(got, "PreFly") {
		t.Error(got)
	}
	for k := range hook.NumKinds {
		want := k == hook.PreRunPodSandbox || k == hook.PreStartContainer || k == hook.PreCreateContainer || k == hook.PostStopContainer
		if r.Wants(k) != want {
			t.Errorf("wants %s", k)
		}
	}
}

func TestRefusedFiles(t *testing.T) {
	t.Parallel()
	const hooksOf = `,"runtime-hooks":["PreStartContainer"]}`
	for name, c := range map[string]struct{ content, want string }{
		"empty":         {"", "not JSON at byte 0"},
		"cut":           {`{"remote-endpoint":"/x"`, "not JSON at byte 23"},
		"null":          {"null", "remote-endpoint"},
		"list":          {"[]", "not a hook configuration"},
		"wrong type":    {`{"remote-endpoint":5}`, "remote-endpoint"},
		"no endpoint":   {`{"failure-policy":"Fail"` + hooksOf, "want /path, unix:///path or host:port"},
		"relative":      {`{"remote-endpoint":"x.sock"` + hooksOf, "want /path"},
		"climbing":      {`{"remote-endpoint":"/a/../b"` + hooksOf, "clean absolute"},
		"unix relative": {`{"remote-endpoint":"unix://a"` + hooksOf, "clean absolute"},
		"long":          {`{"remote-endpoint":"/` + strings.Repeat("a", 107) + `"` + hooksOf, "107"},
		"port":          {`{"remote-endpoint":"localhost:0"` + hooksOf, "1..65535"},
		"no port":       {`{"remote-endpoint":"localhost"` + hooksOf, "host:port"},
		"remote":        {`{"remote-endpoint":"10.0.0.1:99"` + hooksOf, "hooks.allowRemote"},
		"remote name":   {`{"remote-endpoint":"tcp://node:99"` + hooksOf, "hooks.allowRemote"},
		"policy":        {`{"remote-endpoint":"/x","failure-policy":"fail"` + hooksOf, "want Fail or Ignore"},
		"hooks":         {`{"remote-endpoint":"/x","runtime-hooks":[` + strings.Repeat(`"",`, 64) + `""]}`, "65 entries"},
		"large":         {strings.Repeat(" ", 64<<10+1), "larger than"},
	} {
		dir := t.TempDir()
		hooktest.Write(t, dir, "x.json", c.content)
		s := open(t, dir, nil).Snapshot()
		if got := problems(s); len(s.Servers) > 0 || len(s.Problems) != 1 || !strings.Contains(got, filepath.Join(dir, "x.json")) || !strings.Contains(got, c.want) {
			t.Errorf("%s: %v %s", name, s.Servers, got)
		}
	}
	dir := t.TempDir()
	hooktest.Write(t, dir, "x.json", `{"remote-endpoint":"tcp://[2001:db8::1]:99"`+hooksOf)
	if got := names(open(t, dir, func(o *hooks.Options) { o.Config.AllowRemote = true }).Snapshot()); got != "x=tcp://[2001:db8::1]:99" {
		t.Error(got)
	}
}

// A FIFO must not hold the proxy up, a bad name must not reach the ledger, and too many are too many.
func TestStrangeDirectories(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo.json"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", filepath.Join(dir, "gone.json")); err != nil {
		t.Fatal(err)
	}
	hooktest.Write(t, dir, "a b.json", `{"remote-endpoint":"/x"}`)
	for i := range 33 {
		register(t, dir, fmt.Sprintf("s%02d", i), "/x", "Fail")
	}
	s := open(t, dir, nil).Snapshot()
	got := problems(s)
	if len(s.Servers) != 32 || len(s.Problems) != 3 || !strings.Contains(got, "fifo.json: not a regular file") || !strings.Contains(got, "a b.json: not read") ||
		!strings.Contains(got, "s32.json: not read: more than 32") {
		t.Errorf("%d servers\n%s", len(s.Servers), got)
	}
	s = open(t, filepath.Join(dir, "missing"), nil).Snapshot()
	if len(s.Servers) > 0 || !strings.Contains(problems(s), "missing") {
		t.Errorf("missing directory: %s", problems(s))
	}
	if s = open(t, "", nil).Snapshot(); len(s.Servers)+len(s.Problems) > 0 {
		t.Errorf("no directory: %+v", s)
	}
}

// follow runs the registry's watcher and returns a wait for a state.
func follow(t *testing.T, dir string, poll time.Duration) (r *hooks.Registry, until func(want string, problem string)) {
	t.Helper()
	r = open(t, dir, func(o *hooks.Options) { patient(o); o.Poll = poll })
	ctx, cancel := context.WithCancel(context.Background())
	done, told := make(chan error, 1), make(chan struct{}, 1000)
	go func() {
		done <- r.Run(ctx, func(s hooks.Snapshot) {
			if names(s) != names(r.Snapshot()) {
				t.Error("told of another state than the registry's")
			}
			told <- struct{}{}
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return r, func(want, problem string) {
		t.Helper()
		eventually(t, want+" "+problem, func() bool {
			s := r.Snapshot()
			return names(s) == want && (problem == "") == (len(s.Problems) == 0) && strings.Contains(problems(s), problem)
		})
		select {
		case <-told:
		case <-time.After(time.Minute):
			t.Error("the change was not told")
		}
	}
}

func TestReload(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "made", "by", "the proxy")
	r, until := follow(t, dir, time.Hour)
	until("", "") // the problem of the missing directory goes when it is made
	register(t, dir, "x", "/a", "Fail", hook.PreStartContainer)
	until("x=unix:///a", "")
	register(t, dir, "x", "/b", "Fail", hook.PreCreateContainer)
	until("x=unix:///b", "")
	if r.Wants(hook.PreStartContainer) || !r.Wants(hook.PreCreateContainer) {
		t.Error("hooks of the old content")
	}
	// koordlet truncates and writes in place: whatever half is seen, the last good content stays in force.
	path := filepath.Join(dir, "x.json")
	if err := os.WriteFile(path, []byte(`{"remote-endpoint":"/c"`), 0o600); err != nil {
		t.Fatal(err)
	}
	until("x=unix:///b", path+": not JSON at byte 23: unexpected end of JSON input; the last good content stays in force")
	if !r.Wants(hook.PreCreateContainer) {
		t.Error("the last good hooks are gone")
	}
	register(t, dir, "y", "/d", "Ignore")
	until("x=unix:///b y=unix:///d", path)
	register(t, dir, "x", "/c", "Fail")
	until("x=unix:///c y=unix:///d", "")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	until("y=unix:///d", "")
	if err := os.Rename(filepath.Join(dir, "y.json"), filepath.Join(dir, "z.json")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "renamed", func() bool { return names(r.Snapshot()) == "z=unix:///d" })
}

// A directory that is removed and made again has no watch: that is noticed without the poll.
func TestDirectoryGoneAndBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	hookDir := filepath.Join(dir, "hooks")
	register(t, dir, "unused", "/a", "Fail")
	r, _ := follow(t, hookDir, time.Hour)
	eventually(t, "made", func() bool { _, err := os.Stat(hookDir); return err == nil })
	register(t, hookDir, "x", "/a", "Fail")
	eventually(t, "x", func() bool { return names(r.Snapshot()) == "x=unix:///a" })
	if err := os.RemoveAll(hookDir); err != nil {
		t.Fatal(err)
	}
	eventually(t, "gone", func() bool { return names(r.Snapshot()) == "" })
	eventually(t, "made again", func() bool { _, err := os.Stat(hookDir); return err == nil })
	register(t, hookDir, "x", "/b", "Fail")
	eventually(t, "x again", func() bool { return names(r.Snapshot()) == "x=unix:///b" })
}

// A node whose inotify instances are used up: the proxy serves, reads the directory each second and says why; when there are some
// again, events come again.
func TestWithoutInotify(t *testing.T) {
	if !kerneltest.InUserNamespace(t) {
		return
	}
	kerneltest.Limit(t, "max_inotify_instances", 0)
	dir := t.TempDir()
	_, until := follow(t, dir, time.Hour)
	const why = "changes are noticed within 1s only, the kernel does not tell of them (fs.inotify.max_user_instances, max_user_watches): "
	until("", dir+": "+why+"couldn't initialize inotify: too many open files")
	register(t, dir, "x", "/a", "Fail")
	until("x=unix:///a", why)
	kerneltest.Limit(t, "max_inotify_instances", 128)
	until("x=unix:///a", "")
	register(t, dir, "x", "/b", "Fail")
	until("x=unix:///b", "")
}

// Calls go on while the directory changes under them.
func TestCallsDuringReload(t *testing.T) {
	t.Parallel()
	answer := func(context.Context, string, map[string]any) (map[string]any, error) { return map[string]any{}, nil }
	_, one := hooktest.Serve(t, "unix", filepath.Join(t.TempDir(), "s"), answer)
	_, two := hooktest.Serve(t, "unix", filepath.Join(t.TempDir(), "s"), answer)
	dir := t.TempDir()
	register(t, dir, "x", one, "Fail", all()...)
	r, _ := follow(t, dir, time.Hour)
	stop, done := make(chan struct{}), make(chan error, 4)
	for range cap(done) {
		go func() {
			for {
				select {
				case <-stop:
					done <- nil
					return
				default:
					if _, err := call(context.Background(), r, hook.PreCreateContainer); err != nil {
						done <- err
						return
					}
				}
			}
		}()
	}
	for i := range 20 {
		endpoint := [...]string{one, two}[i%2]
		register(t, dir, "x", endpoint, "Fail", all()...)
		eventually(t, endpoint, func() bool { return names(r.Snapshot()) == "x=unix://"+endpoint })
	}
	close(stop)
	for range cap(done) {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestSkips(t *testing.T) {
	t.Parallel()
	r := open(t, "", nil)
	const key = "runtimeproxy.koordinator.sh/skip-hookserver"
	for name, c := range map[string]struct {
		labels, annotations map[string]string
		want                bool
	}{
		"none":       {nil, nil, false},
		"label":      {map[string]string{key: "true"}, nil, true},
		"annotation": {map[string]string{key: "false"}, map[string]string{key: "true"}, true},
		"value":      {map[string]string{key: "True"}, map[string]string{key: ""}, false},
		"other":      {map[string]string{"a": "true"}, nil, false},
	} {
		if got := r.Skips(c.labels, c.annotations); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	empty := open(t, "", func(o *hooks.Options) { o.Config.ServerValue = "" })
	if empty.Skips(nil, nil) || !empty.Skips(map[string]string{key: ""}, nil) {
		t.Error("an empty value is the value of a label that is there")
	}
}
