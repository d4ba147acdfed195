// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// managerUser is who koord-manager is: the service account of packaging/manifests, here by a certificate.
const managerUser = "system:serviceaccount:koordinator-system:koord-manager"

// managerPolicy has the API server write down what koord-manager asks and writes, keys of certificates excepted.
const managerPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, users: ["` + managerUser + `"], resources: [{group: "", resources: [secrets]}]}
- {level: Request, users: ["` + managerUser + `"], verbs: [create, patch, update, delete]}
- {level: Metadata, users: ["` + managerUser + `"]}
- {level: None}
`

const (
	system     = "koordinator-system"
	configMaps = "/api/v1/namespaces/" + system + "/configmaps"
	strategies = configMaps + "/slo-controller-config"
)

// replica is one koord-manager.
type replica struct {
	*process
	metrics string // URL
	hooks   string // address of its webhooks
}

// replica starts one more koord-manager; it lasts as long as the whole test.
func (m *managed) replica(t *testing.T) *replica {
	t.Helper()
	kubeconfig, err := m.c.Kubeconfig(managerUser, "system:serviceaccounts", "system:serviceaccounts:"+system)
	if err != nil {
		t.Fatal(err)
	}
	at := freeAddresses(t, 3)
	_, port, _ := strings.Cut(at[2], ":")
	log := filepath.Join(m.dir, "manager-"+strconv.Itoa(len(m.replicas))+".log")
	r := &replica{metrics: "http://" + at[0] + "/metrics", hooks: at[2]}
	r.process = startProgram(m.outer, log, bin("koord-manager"), "--kubeconfig="+kubeconfig, "--metrics-addr="+at[0],
		"--health-probe-addr="+at[1], "--webhook-host=127.0.0.1", "--webhook-port="+port, "--webhook-cert-hosts=127.0.0.1", "--v=4")
	m.replicas = append(m.replicas, r)
	m.front.set(m.replicas)
	return r
}

// freeAddresses are addresses on loopback that nobody listens on.
func freeAddresses(t *testing.T, n int) (out []string) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() // held until all are found, so that they differ
		out = append(out, l.Addr().String())
	}
	return out
}

// runs reports whether the process has not ended.
func (r *replica) runs() bool {
	select {
	case <-r.done:
		return false
	default:
		return true
	}
}

// has reports whether a line of the replica's metrics fits.
func (r *replica) has(ctx context.Context, pattern string) (bool, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.metrics, nil)
	if err != nil {
		return false, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return regexp.MustCompile("(?m)^" + pattern + "$").Match(text), err
}

// shows waits until a line of the replica's metrics fits.
func (r *replica) shows(t *testing.T, limit time.Duration, pattern string) {
	t.Helper()
	eventually(t, limit, func() error {
		ok, err := r.has(t.Context(), pattern)
		if err == nil && !ok {
			err = fmt.Errorf("no line %s in %s", pattern, r.metrics)
		}
		return err
	})
}

// leader is the replica whose controllers work.
func (m *managed) leader(t *testing.T) *replica {
	t.Helper()
	var found *replica
	eventually(t, 60*time.Second, func() error {
		for _, r := range m.replicas {
			if ok, err := r.has(t.Context(), "koordinator_manager_is_leader 1"); r.runs() && err == nil && ok {
				found = r
				return nil
			}
		}
		return fmt.Errorf("none of %d replicas leads", len(m.replicas))
	})
	return found
}

// front is what a Service is in a cluster: one address in front of the webhooks of all replicas that answer.
type front struct {
	listener net.Listener
	mu       sync.Mutex
	replicas []*replica
}

func newFront(t *testing.T) *front {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &front{listener: l}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return // closed
			}
			all.Go(func() { f.relay(t.Context(), in) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close() // nothing is left to lose
		all.Wait()
	})
	return f
}

func (f *front) set(replicas []*replica) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.replicas = slices.Clone(replicas)
}

// relay connects one client with the first replica that takes it, until either has ended or the test has.
func (f *front) relay(ctx context.Context, in net.Conn) {
	f.mu.Lock()
	replicas := f.replicas
	f.mu.Unlock()
	defer in.Close()
	for _, r := range replicas {
		out, err := net.DialTimeout("tcp", r.hooks, time.Second)
		if err != nil {
			continue
		}
		stop := context.AfterFunc(ctx, func() {
			_ = in.Close() // both copies end by it
			_ = out.Close()
		})
		var up sync.WaitGroup
		up.Go(func() {
			_, _ = io.Copy(out, in) // who ends the connection is no matter here
			_ = out.Close()
		})
		_, _ = io.Copy(in, out)
		_ = in.Close()
		up.Wait()
		stop()
		return
	}
}

// install puts koord-manager's rights and priority classes into the cluster.
func (m *managed) install(ctx context.Context, t *testing.T) {
	t.Helper()
	if err := m.c.Namespace(ctx, system); err != nil {
		t.Fatal(err)
	}
	account := cluster.Object{"metadata": map[string]any{"name": "koord-manager"}}
	if _, err := m.c.Admin().Create(ctx, "/api/v1/namespaces/"+system+"/serviceaccounts", account); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"priorityclasses", "rbac-slo", "rbac-webhook"} {
		if _, err := m.c.Admin().Apply(ctx, "lab", false, []byte(read(t, manifest(file)))); err != nil {
			t.Fatal(err)
		}
	}
}

func manifest(name string) string { return "../../../packaging/manifests/" + name + ".yaml" }

// hook has the API server call the webhooks by the front's URL: nothing routes Services here. It waits for the caBundles.
func (m *managed) hook(t *testing.T) {
	t.Helper()
	var paths []string
	for doc := range strings.SplitSeq(read(t, manifest("webhook")), "\n---") {
		o, err := cluster.ParseObject([]byte(doc))
		if err != nil {
			t.Fatal(err)
		}
		list, _ := o["webhooks"].([]any)
		for i := range list {
			config, _ := o.At("webhooks", i, "clientConfig").(map[string]any)
			config["url"] = "https://" + m.front.listener.Addr().String() + o.Str("webhooks", i, "clientConfig", "service", "path")
			delete(config, "service")
		}
		if len(list) == 0 {
			continue
		}
		path, err := m.c.Admin().Path(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.c.Admin().Create(t.Context(), filepath.Dir(path), o); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	for _, path := range paths {
		// The keeper looks every five seconds for configurations that are not there, and once a minute for those that are.
		eventually(t, 70*time.Second, func() error {
			o, err := m.c.Admin().Get(t.Context(), path)
			if err != nil {
				return err
			}
			list, _ := o["webhooks"].([]any)
			for i := range list {
				if o.Str("webhooks", i, "clientConfig", "caBundle") == "" {
					return fmt.Errorf("%s has no caBundle", o.Str("webhooks", i, "name"))
				}
			}
			return nil
		})
	}
}

// strategy changes keys of slo-controller-config; "" removes one.
func (m *managed) tell(t *testing.T, keys map[string]string) {
	t.Helper()
	data := map[string]any{}
	for key, value := range keys {
		data[key] = value
		if value == "" {
			data[key] = nil
		}
	}
	_, err := m.c.Admin().Patch(t.Context(), strategies, cluster.MergePatch, map[string]any{"data": data})
	if cluster.Refused(err, "NotFound") {
		maps.DeleteFunc(data, func(_ string, v any) bool { return v == nil })
		o := cluster.Object{"metadata": map[string]any{"name": "slo-controller-config"}, "data": data}
		_, err = m.c.Admin().Create(t.Context(), configMaps, o)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// kill ends a replica as a crash does.
func (r *replica) kill(t *testing.T) {
	t.Helper()
	if err := r.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-r.done
}
