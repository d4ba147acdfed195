// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/koord-rt/koord-rt/cluster/internal/pernode"
	"github.com/koord-rt/koord-rt/cluster/quotamirror"
	"github.com/koord-rt/koord-rt/cluster/quotaprofile"
	"github.com/koord-rt/koord-rt/cluster/slo/nodemetric"
	"github.com/koord-rt/koord-rt/cluster/slo/noderesource"
	"github.com/koord-rt/koord-rt/cluster/slo/nodeslo"
)

// Program is the name of the binary.
const Program = "koord-manager"

// Roles of a process.
const (
	RoleSLO         = "slo"
	RoleWebhook     = "webhook"
	RoleRecommender = "recommender"
)

// ErrFlag is wrapped by every error about the command line.
var ErrFlag = errors.New("bad flag")

// Options are what the command line says.
type Options struct {
	// Roles and Controllers that run, sorted.
	Roles, Controllers []string
	// Elect is whether controllers wait for the lease in Namespace.
	Elect     bool
	Namespace string
	// Addresses of metrics, probes and profiles; "0" or "" is none.
	Metrics, Health, Pprof string
	// QPS and Burst bound the requests of one manager to the API server; QPS below 0 is no bound but the server's own.
	QPS   float64
	Burst int
	// Resync is the time after which everything that is watched is looked at again, 0 for controller-runtime's own.
	Resync time.Duration
	// Orphan is how long the objects that are made for a node outlive it.
	Orphan time.Duration
	// Recommend is the recommender.
	Recommend Recommend
	// SharedGPU has koordinator.sh/gpu.shared offered on nodes.
	SharedGPU bool
	// Reapply is said of profiles that are applied again.
	Reapply Reapply
	// ConfigNamespace and ConfigName name slo-controller-config.
	ConfigNamespace, ConfigName string
	// Kubeconfig is a file; "" is the pod's own account.
	Kubeconfig string
	// LogLevel and LogFormat are those of daemon/logs.
	LogLevel, LogFormat string
	// Webhook is the admission.
	Webhook Webhook
	// Version asks for the version alone.
	Version bool
}

// Reapply is what is said of the controller colocationprofile.
type Reapply struct {
	// On is the gate.
	On bool
	// All keeps up profiles that do not ask for it; QPS and Burst bound the writes.
	All      bool
	Interval time.Duration
	QPS      float64
	Burst    int
}

// Recommend is what is said of the recommender: the time between two passes, and for how long a container must have been measured.
type Recommend struct{ Every, ColdStart time.Duration }

// Webhook is what is said of the admission.
type Webhook struct {
	Host string
	Port int
	// Hosts are further names of the certificate.
	Hosts []string
	// SchedulerName is given to pods that need our scheduler, "" for none.
	SchedulerName string
	// SchedulerUsers may write the scheduler's annotations, beside the default ones.
	SchedulerUsers []string
	// PodLimits is what pods may carry in namespaces that do not say so themselves.
	PodLimits string
	// Gates that are given.
	Gates map[string]bool
}

// Runs reports whether a role is one of this process.
func (o *Options) Runs(role string) bool { return slices.Contains(o.Roles, role) }

// Parse reads the command line; getenv reads the environment. Usage and errors of the flags themselves go to out. notes say what had
// no effect, and why.
func Parse(args []string, getenv func(string) string, out io.Writer) (o Options, notes []string, err error) {
	p := &parser{flags: flag.NewFlagSet(Program, flag.ContinueOnError), notes: map[string]string{}}
	p.flags.SetOutput(out)
	f := p.flags
	roles := p.parts("roles", RoleSLO+","+RoleWebhook, "what this process does: slo (controllers), webhook (admission), recommender (Recommendations)")
	controllers := p.parts("controllers", strings.Join(known(), ","), "controllers of the role slo, * for all, -NAME for all that are named but this one")
	f.BoolVar(&o.Elect, "enable-leader-election", true, "controllers run on one replica at a time")
	f.StringVar(&o.Namespace, "leader-election-namespace", or(getenv("POD_NAMESPACE"), "koordinator-system"),
		"namespace of the lease, of the Secret with certificates and of the webhook Service (environment: POD_NAMESPACE)")
	lock := f.String("leader-elect-resource-lock", "leases", "leases is the only kind")
	f.StringVar(&o.Metrics, "metrics-addr", ":8080", "address of /metrics; 0 for none")
	f.StringVar(&o.Health, "health-probe-addr", ":8000", "address of /healthz and /readyz; 0 for none")
	f.StringVar(&o.Pprof, "pprof-addr", ":8090", "address of profiles, with --enable-pprof")
	profiles := f.Bool("enable-pprof", false, "serve profiles (Koordinator's default is true: they show memory to who asks)")
	f.Float64Var(&o.QPS, "rest-config-qps", 500, "requests per second to the API server; negative: as many as it takes. A change of the strategy is one for each node")
	f.IntVar(&o.Burst, "rest-config-burst", 1000, "requests at once")
	resync := f.String("sync-period", "", "how often everything is looked at without a change; 0 or empty: every ten hours")
	f.DurationVar(&o.Orphan, "orphan-keep", pernode.Orphan, "how long a node's NodeSLO and NodeMetric outlive it: a node that is registered anew finds them as they were")
	f.StringVar(&o.ConfigNamespace, "config-namespace", "koordinator-system", "namespace of slo-controller-config")
	f.StringVar(&o.ConfigName, "slo-config-name", "slo-controller-config", "name of slo-controller-config")
	f.StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig file; empty: the pod's service account")
	f.StringVar(&o.LogFormat, "log-format", "text", "text or json")
	verbosity := f.Int("v", 0, "4 and more logs debug messages")
	f.BoolVar(&o.Version, "version", false, "print the version and end")
	port := f.String("webhook-port", or(getenv("WEBHOOK_PORT"), "9876"), "port of the webhooks (environment: WEBHOOK_PORT)")
	f.StringVar(&o.Webhook.Host, "webhook-host", "", "address of the webhooks; empty: all")
	hosts := p.parts("webhook-cert-hosts", "", "further names and addresses of the webhooks' certificate, with commas, where API servers call by URL")
	f.StringVar(&o.Webhook.SchedulerName, "scheduler-name", "", "scheduler that pods get which need Koordinator's; empty: pods keep theirs")
	users := p.parts("scheduler-users", "", "users that may write the scheduler's annotations, with commas, beside this namespace's koord-scheduler and koord-manager")
	f.StringVar(&o.Webhook.PodLimits, "pod-limits", "", "what pods may carry in namespaces that do not say so themselves; empty: the default")
	f.BoolVar(&o.Reapply.All, "colocation-profile-reconcile-by-default", false, "with the gate "+gateReapply+": apply every changed profile again, not only those with the label")
	f.DurationVar(&o.Reapply.Interval, "colocation-profile-reconcile-interval", 30*time.Second, "time between two looks at pods that wait for a node")
	f.Float64Var(&o.Reapply.QPS, "colocation-profile-update-pod-qps", 10, "pods that are changed in a second")
	f.IntVar(&o.Reapply.Burst, "colocation-profile-update-pod-qps-burst", 100, "pods that are changed at once")
	gates := p.parts("feature-gates", "", "Name=true or false, with commas")
	f.DurationVar(&o.Recommend.Every, "recommend-interval", time.Minute, "time between two looks at what Recommendations are about")
	f.DurationVar(&o.Recommend.ColdStart, "recommend-cold-start", time.Hour, "for how long a container must have been measured until something is recommended")
	p.idle()
	if err := f.Parse(args); err != nil {
		return o, nil, fmt.Errorf("%w: %w", ErrFlag, err)
	}
	o.LogLevel = "info"
	if *verbosity >= 4 {
		o.LogLevel = "debug"
	}
	if !*profiles {
		o.Pprof = ""
	}
	p.arguments(f.Args())
	o.Roles = p.list("roles", roles.String(), []string{RoleSLO, RoleWebhook, RoleRecommender}, nil)
	o.Controllers = p.list("controllers", controllers.String(), known(), later)
	o.Webhook.Gates = p.gates(gates.list)
	o.SharedGPU, o.Reapply.On = o.Webhook.Gates[gateSharedGPU], o.Webhook.Gates[gateReapply]
	if on, given := o.Webhook.Gates["WebhookFramework"]; given && !on {
		if o.Roles = slices.DeleteFunc(o.Roles, func(r string) bool { return r == RoleWebhook }); len(o.Roles) == 0 {
			p.fail("roles=%.60s: nothing is left to do: feature gate WebhookFramework=false takes the role webhook out", roles.String())
		}
	}
	o.Webhook.Port = p.port(*port)
	o.Webhook.Hosts, o.Webhook.SchedulerUsers = split(hosts.String()), split(users.String())
	o.Resync = p.duration("sync-period", *resync)
	if *lock != "leases" {
		p.fail("leader-elect-resource-lock=%.60s: want leases", *lock)
	}
	if o.Recommend.Every < time.Second || o.Recommend.ColdStart < 0 {
		p.fail("recommend-interval=%s, recommend-cold-start=%s: want at least 1s, and no negative time", o.Recommend.Every, o.Recommend.ColdStart)
	}
	if o.ConfigNamespace == "" || o.ConfigName == "" || o.Namespace == "" {
		p.fail("config-namespace, slo-config-name and leader-election-namespace must not be empty")
	}
	if o.Orphan < time.Second {
		p.fail("orphan-keep=%s: want at least 1s", o.Orphan)
	}
	if o.QPS == 0 || o.Burst < 1 {
		p.fail("rest-config-qps=%g, rest-config-burst=%d: want more than 0", o.QPS, o.Burst)
	}
	if r := o.Reapply; r.Interval < time.Second || !(r.QPS > 0) || r.Burst < 1 {
		p.fail("colocation-profile-reconcile-interval=%s, -update-pod-qps=%g, -update-pod-qps-burst=%d: want at least 1s, more than 0, at least 1", r.Interval, r.QPS, r.Burst)
	}
	return o, p.told(), errors.Join(p.errs...)
}

// known are the controllers that there are.
func known() []string {
	return []string{nodemetric.Name, noderesource.Name, nodeslo.Name, quotamirror.Name, quotaprofile.Name}
}

// later are controllers of Koordinator that are not here.
var later = map[string]string{
	"colocationprofile": reapplied,
}

// parser gathers errors and notes.
type parser struct {
	flags *flag.FlagSet
	errs  []error
	// notes by flag, for those that have no effect.
	notes map[string]string
	more  []string
}

func (p *parser) fail(format string, args ...any) {
	p.errs = append(p.errs, fmt.Errorf("%w: --%s", ErrFlag, fmt.Sprintf(format, args...)))
}

func (p *parser) arguments(args []string) {
	if len(args) > 0 {
		p.errs = append(p.errs, fmt.Errorf("%w: unexpected argument %.60q", ErrFlag, args[0]))
	}
}

// idle are flags of things that are not here, or are so without being asked.
func (p *parser) idle() {
	const klog = "no effect: logs go to standard error"
	for names, why := range map[string]string{
		"namespace": "no effect: nodes and pods of every namespace are watched, of others only this one's ConfigMap",
		"colocation-profile-force-update-pod-duration colocation-profile-expire-pod-cache-duration":                            rounds,
		"quota-update-max-retries quota-update-retry-jitter quota-update-max-total-jitter":                                     quotas,
		"pod-enhanced-validator-config-namespace pod-enhanced-validator-config-name pod-enhanced-validator-reconcile-interval": rules,
		"binding-admission-user-name binding-admission-namespaces binding-admission-exclude-namespaces binding-admission-bypass-labels " +
			"binding-admission-bypass-annotations": bindings,
		"noderesource-plugins":          "no effect: what a node's resources are made of is compiled in, and what is not configured does nothing",
		"node-strategy-name-need-check": "no effect: names of node strategies are always checked",
		"log_dir log_file log_file_max_size log_backtrace_at stderrthreshold vmodule": klog,
	} {
		for name := range strings.FieldsSeq(names) {
			p.notes[name] = why
			p.flags.String(name, "", why)
		}
	}
	for name, why := range map[string]string{
		"quota-update-conflict-fresh-get": quotas, "binding-admission-dry-run": bindings,
		"logtostderr": klog, "alsologtostderr": klog, "add_dir_header": klog, "one_output": klog, "skip_headers": klog, "skip_log_headers": klog,
	} {
		p.notes[name] = why
		p.flags.Bool(name, false, why)
	}
}

// told are the notes about what is on the command line.
func (p *parser) told() []string {
	var out []string
	p.flags.Visit(func(f *flag.Flag) {
		if why, is := p.notes[f.Name]; is && f.Value.String() != "" {
			out = append(out, "--"+f.Name+" has "+why)
		}
	})
	return append(out, p.more...)
}

func (p *parser) port(text string) int {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 {
		p.fail("webhook-port=%.60s: want 1..65535", text)
	}
	return int(n)
}

func (p *parser) duration(name, text string) time.Duration {
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		p.fail("%s=%.60s: want a duration such as 10h", name, text)
	}
	return d
}

// or is text, or what holds where there is none.
func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
