// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// managerUser is who koord-manager is, sloUser and webhookUser who it is where each role has a process and an account of its own.
const (
	managerUser  = cluster.ManagerUser
	sloUser      = managerUser + "-slo"
	webhookUser  = managerUser + "-webhook"
	managerUsers = `"` + managerUser + `", "` + sloUser + `", "` + webhookUser + `"`
)

// managerRules have the API server write down what koord-manager asks and writes, keys of certificates excepted.
const managerRules = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, users: [` + managerUsers + `], resources: [{group: "", resources: [secrets]}]}
- {level: Request, users: [` + managerUsers + `], verbs: [create, patch, update, delete]}
- {level: Metadata, users: [` + managerUsers + `]}
`

const (
	managerPolicy = managerRules + `
- {level: None}
`
	// loopPolicy has it write down what koordlet's account asks, too, and for whom it asks an eviction.
	loopPolicy = managerRules + `
- {level: Request, users: ["` + cluster.AgentUser + `"], resources: [{group: "", resources: [pods, pods/eviction]}]}
- {level: Metadata, users: ["` + cluster.AgentUser + `"]}
` + kubeletRules + `
- {level: None}
`
)

const (
	system     = cluster.ManagerNamespace
	strategies = "/api/v1/namespaces/" + system + "/configmaps/slo-controller-config"
)

// replica is one koord-manager.
type replica struct {
	*process
	log     string
	metrics string // URL
	hooks   string // address of its webhooks
	killed  bool   // by this test
	server  *front // between it and its API server, where the test has put one
}

// replica starts one more koord-manager; it lasts as long as the whole test.
func (m *managed) replica(t *testing.T, more ...string) *replica {
	t.Helper()
	r := m.manager(t, "manager-"+strconv.Itoa(len(m.replicas)), more...)
	m.replicas = append(m.replicas, r)
	m.front.set(m.replicas)
	return r
}

// manager starts a koord-manager, confined as in its Deployment, that no API server calls; more are flags that go before the usual ones.
func (m *managed) manager(t *testing.T, name string, more ...string) *replica {
	t.Helper()
	at := freeAddresses(t, 3)
	flags, err := m.c.ManagerFlags(at[0], at[1], at[2])
	if err != nil {
		t.Fatal(err)
	}
	r := &replica{log: filepath.Join(m.dir, name+".log"), metrics: "http://" + at[0] + "/metrics", hooks: at[2]}
	r.process = startProgram(m.outer, r.log, "unshare", confined(t, slices.Concat(flags, gatedFlags(), []string{"--v=4"}, more))...)
	return r
}

// alone are the flags of a koord-manager that has one role, and an account with the rights of this role. The manager's own account stays.
func (m *managed) alone(ctx context.Context, t *testing.T, role string) []string {
	t.Helper()
	const subject = "subjects:\n- kind: ServiceAccount\n  name: koord-manager\n  namespace: " + system + "\n"
	text := read(t, manifest("rbac-"+role))
	if strings.Count(text, subject) != 2 {
		t.Fatalf("rbac-%s binds otherwise than this test knows", role)
	}
	more := strings.ReplaceAll(strings.TrimPrefix(subject, "subjects:\n"), "koord-manager", "koord-manager-"+role)
	if _, err := m.c.Admin().Apply(ctx, "lab", false, []byte(strings.ReplaceAll(text, subject, subject+more))); err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := m.c.Kubeconfig(managerUser+"-"+role, "system:serviceaccounts", "system:serviceaccounts:"+system)
	if err != nil {
		t.Fatal(err)
	}
	return []string{"--roles=" + role, "--kubeconfig=" + kubeconfig}
}

// freeAddresses are addresses on loopback that nobody listens on.
func freeAddresses(t *testing.T, n int) []string {
	t.Helper()
	out, err := cluster.FreeAddresses(n)
	if err != nil {
		t.Fatal(err)
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

// alive is an error with its last words when the process has ended by itself.
func (r *replica) alive() error {
	if r.runs() || r.killed {
		return nil
	}
	return fmt.Errorf("a manager has ended by itself: %s; end of %s:\n%s", r.cmd.ProcessState, r.log, logEnd(r.log))
}

// working waits until every replica that was not killed shows its metrics: one that has just started may wait for its API server.
func (m *managed) working(t *testing.T) {
	t.Helper()
	for _, r := range m.replicas {
		if !r.killed {
			r.shows(t, 30*time.Second, "koordinator_manager_is_leader [01]")
		}
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
		if err := r.alive(); err != nil {
			t.Fatal(err)
		}
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
			if err := r.alive(); err != nil {
				t.Fatal(err)
			}
			if ok, err := r.has(t.Context(), "koordinator_manager_is_leader 1"); r.runs() && err == nil && ok {
				found = r
				return nil
			}
		}
		return fmt.Errorf("none of %d replicas leads", len(m.replicas))
	})
	return found
}

// front is what a Service is in a cluster: one address in front of the webhooks of all replicas that answer. It can stand in front of an API
// server as well.
type front struct {
	listener net.Listener
	from     net.Addr // that it connects from, nil for any
	mu       sync.Mutex
	replicas []*replica
	open     map[net.Conn]bool // that came to it
}

func newFront(t *testing.T, from net.Addr) *front {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &front{listener: l, from: from, open: map[net.Conn]bool{}}
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

// only leads to one replica alone, and ends what leads elsewhere: API servers keep connections.
func (f *front) only(r *replica) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.replicas = []*replica{r}
	for in := range f.open {
		_ = in.Close() // its relay ends by it
	}
}

// relay connects one client with the first replica that takes it, until either has ended or the test has.
func (f *front) relay(ctx context.Context, in net.Conn) {
	f.mu.Lock()
	replicas := f.replicas
	f.open[in] = true
	f.mu.Unlock()
	defer func() {
		_ = in.Close() // nothing is left to lose
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.open, in)
	}()
	for _, r := range replicas {
		out, err := (&net.Dialer{Timeout: time.Second, LocalAddr: f.from}).Dial("tcp", r.hooks)
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
	if err := m.c.InstallManager(ctx, filepath.Dir(manifest(""))); err != nil {
		t.Fatal(err)
	}
}

func manifest(name string) string { return "../../../packaging/manifests/" + name + ".yaml" }

// hook has the API server call the webhooks by the front's URL, and waits for the caBundles.
func (m *managed) hook(t *testing.T) {
	t.Helper()
	if err := m.c.HookManager(t.Context(), manifest("webhook"), m.front.listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
}

// tell changes keys of slo-controller-config; "" removes one.
func (m *managed) tell(t *testing.T, keys map[string]string) {
	t.Helper()
	if err := m.c.TellManager(t.Context(), keys); err != nil {
		t.Fatal(err)
	}
}
