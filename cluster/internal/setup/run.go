// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/koord-rt/koord-rt/cluster/quotamirror"
	"github.com/koord-rt/koord-rt/cluster/quotaprofile"
	"github.com/koord-rt/koord-rt/cluster/reapply"
	"github.com/koord-rt/koord-rt/cluster/recommender"
	"github.com/koord-rt/koord-rt/cluster/slo/config"
	"github.com/koord-rt/koord-rt/cluster/slo/follow"
	"github.com/koord-rt/koord-rt/cluster/slo/nodemetric"
	"github.com/koord-rt/koord-rt/cluster/slo/noderesource"
	"github.com/koord-rt/koord-rt/cluster/slo/nodeslo"
	"github.com/koord-rt/koord-rt/cluster/webhook"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/profile"
	"github.com/koord-rt/koord-rt/policy/recommend"
)

const (
	// lease is upstream's, so that an installation of Koordinator's and ours never work at the same time.
	lease = "koordinator-manager"
	// leaseOfRecommender is that of processes which are recommenders and not controllers: those never wait for each other.
	leaseOfRecommender = "koordinator-manager-recommender"
	// pause is the time between two terms of office: what the last one had begun has ended by then. An API server that is away is
	// asked as often.
	pause = 5 * time.Second
)

// The times of the lease. A leader whose renewals fail hears of it renewEvery + renewFor after the last good one, and client-go tries to give the
// lease back before it says so, by requests that end after half of renewFor. All of that must be over when another replica may take the lease:
// with client-go's ten seconds a leader that was cut off worked two seconds too long.
const (
	leaseFor   = 15 * time.Second
	renewFor   = 8 * time.Second
	renewEvery = 2 * time.Second
)

// process is one koord-manager.
type process struct {
	o      Options
	rest   *rest.Config
	scheme *runtime.Scheme
	log    *slog.Logger
	leader prometheus.Gauge
	again  time.Duration // between terms, and between questions to an API server that is away
}

// Run works until ctx ends, or something fails that cannot be tried again.
func Run(ctx context.Context, o Options, c *rest.Config, log *slog.Logger) error {
	scheme, err := Scheme()
	if err != nil {
		return err
	}
	c = rest.CopyConfig(c)
	c.QPS, c.Burst = float32(o.QPS), o.Burst
	p := &process{o: o, rest: c, scheme: scheme, log: log, again: pause, leader: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "koordinator_manager_is_leader", Help: "1 while this replica's controllers work.",
	})}
	if err := metrics.Registry.Register(p.leader); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	serving, err := p.serving(ctx)
	if err != nil || ctx.Err() != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 2)
	go func() { ended <- serving.Start(ctx) }()
	go func() { ended <- p.controllers(ctx) }()
	first := <-ended
	cancel() // neither is much use without the other
	return errors.Join(first, <-ended)
}

// serving is the manager of what every replica does; nil when ctx ended before there was one.
func (p *process) serving(ctx context.Context) (ctrl.Manager, error) {
	o := p.options(servingCache(&p.o))
	o.Metrics = metricsserver.Options{BindAddress: or(p.o.Metrics, "0")}
	o.HealthProbeBindAddress = p.o.Health
	o.PprofBindAddress = p.o.Pprof
	var hooks *webhook.Webhooks
	if p.o.Runs(RoleWebhook) {
		hooks = webhook.New(p.webhooks())
		o.WebhookServer = hooks.Server()
	}
	o.MapperProvider = p.mapper(ctx)
	mgr, err := ctrl.NewManager(p.rest, o)
	if err != nil && ctx.Err() != nil {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("make the serving manager: %w", err)
	}
	if hooks != nil {
		if err := hooks.Add(mgr); err != nil {
			return nil, fmt.Errorf("add webhooks: %w", err)
		}
	}
	if err := errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("ping", healthz.Ping)); err != nil {
		return nil, fmt.Errorf("add probes: %w", err)
	}
	return mgr, nil
}

// webhooks are the options of the admission.
func (p *process) webhooks() webhook.Options {
	w := p.o.Webhook
	out := webhook.Default(p.o.Namespace, p.o.ConfigNamespace, p.o.ConfigName, metrics.Registry)
	out.Host, out.Port, out.Certs.Hosts = w.Host, w.Port, w.Hosts
	out.Pod.SchedulerName, out.Pod.PodLimits = w.SchedulerName, w.PodLimits
	out.Pod.Schedulers = append(out.Pod.Schedulers, w.SchedulerUsers...)
	out.Reservation.Schedulers = append(out.Reservation.Schedulers, w.SchedulerUsers...)
	out.Reservation.Deschedulers = append(out.Reservation.Deschedulers, w.SchedulerUsers...)
	out.Quota.LooseKeys = w.Gates["ElasticQuotaEnableUpdateResourceKey"]
	out.Pod.KeepRequests = w.Gates["ColocationProfileSkipMutatingResources"]
	out.Pod.FreePriority = w.Gates["ColocationProfileSkipValidatingPriority"]
	out.Pod.KeepExtended = w.Gates["DisableExtendedResourceSpec"]
	out.Pod.KeepDevices = w.Gates["DisableDeviceResourceSpec"]
	out.Pod.Quota = profile.QuotaRules{
		NoDefault: w.Gates["DisableDefaultQuota"], Parents: w.Gates["SupportParentQuotaSubmitPod"], NoOverhead: w.Gates["ElasticQuotaIgnorePodOverhead"],
	}
	out.Pod.Trees = w.Gates["MultiQuotaTree"]
	out.Pod.Reservations = w.Gates["ReservationMutatingWebhook"]
	out.Pod.CheckDevices = w.Gates["ValidatePodDeviceResource"]
	return out
}

// controllers serves one term of office after the other.
func (p *process) controllers(ctx context.Context) error {
	if !p.o.Runs(RoleSLO) && !p.o.Runs(RoleRecommender) {
		<-ctx.Done()
		return nil
	}
	for {
		err := p.term(ctx)
		if ctx.Err() != nil {
			return err
		}
		p.log.Error("the controllers ended and stand for election again; webhooks go on", "err", err, "after", p.again)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(p.again):
		}
	}
}

// term makes the elected manager and runs it until it loses the lease.
func (p *process) term(ctx context.Context) error {
	registry := &term{Registerer: metrics.Registry}
	defer registry.end()
	mgr, err := p.elected(ctx, registry)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer p.leader.Set(0)
	go func() {
		select {
		case <-ctx.Done():
		case <-mgr.Elected():
			p.leader.Set(1)
		}
	}()
	return mgr.Start(ctx)
}

// elected is the manager of what one replica does at a time.
func (p *process) elected(ctx context.Context, registry prometheus.Registerer) (ctrl.Manager, error) {
	o := p.options(electedCache(&p.o))
	o.Metrics = metricsserver.Options{BindAddress: "0"} // the serving manager shows the metrics of both
	o.LeaderElection, o.LeaderElectionID, o.LeaderElectionNamespace = p.o.Elect, lease, p.o.Namespace
	if !p.o.Runs(RoleSLO) {
		o.LeaderElectionID = leaseOfRecommender
	}
	lasts, renew, every := leaseFor, renewFor, renewEvery
	o.LeaseDuration, o.RenewDeadline, o.RetryPeriod = &lasts, &renew, &every
	o.NewCache = endingWith(ctx)
	o.LeaderElectionReleaseOnCancel = true // nothing is done after the manager has stopped
	mgr, err := ctrl.NewManager(p.rest, o)
	if err != nil {
		return nil, fmt.Errorf("make the elected manager: %w", err)
	}
	if p.o.Runs(RoleRecommender) {
		if err := recommender.Add(mgr, p.recommends(registry)); err != nil {
			return nil, err
		}
	}
	if p.o.Runs(RoleSLO) {
		err = p.slo(mgr, registry)
	}
	return mgr, err
}

// recommends are the options of the recommender.
func (p *process) recommends(registry prometheus.Registerer) recommender.Options {
	model := recommend.Default()
	model.ColdStart = unit.Micros(p.o.Recommend.ColdStart.Microseconds())
	return recommender.Options{Registry: registry, Model: model, Every: p.o.Recommend.Every}
}

// slo adds the controllers of the role slo. Their store of the strategy begins empty: what an earlier term knew is not what holds now.
func (p *process) slo(mgr ctrl.Manager, registry prometheus.Registerer) error {
	store := &config.Store{}
	problems := follow.NewProblems()
	if err := registry.Register(problems); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	follower := follow.Options{Namespace: p.o.ConfigNamespace, Name: p.o.ConfigName, Store: store, Problems: problems}
	if err := follow.Add(mgr, follower); err != nil {
		return err
	}
	for name, add := range map[string]func() error{
		nodeslo.Name: func() error {
			return nodeslo.Add(mgr, nodeslo.Options{Store: store, Registry: registry, Orphan: p.o.Orphan})
		},
		nodemetric.Name: func() error {
			return nodemetric.Add(mgr, nodemetric.Options{Store: store, Registry: registry, Orphan: p.o.Orphan})
		},
		noderesource.Name: func() error {
			return noderesource.Add(mgr, noderesource.Options{Store: store, Registry: registry, SharedGPU: p.o.SharedGPU})
		},
		quotamirror.Name:  func() error { return quotamirror.Add(mgr) },
		quotaprofile.Name: func() error { return quotaprofile.Add(mgr) },
	} {
		if !slices.Contains(p.o.Controllers, name) {
			continue
		}
		if err := add(); err != nil {
			return err
		}
	}
	if r := p.o.Reapply; r.On {
		if err := reapply.Add(mgr, reapply.Options{Interval: r.Interval, All: r.All, QPS: r.QPS, Burst: r.Burst, Registry: registry}); err != nil {
			return err
		}
	}
	return nil
}

// options are those of both managers.
func (p *process) options(c cache.Options) ctrl.Options {
	again, byPriority := true, false
	return ctrl.Options{
		Scheme: p.scheme, Cache: c, Logger: logr.FromSlogHandler(p.log.Handler()),
		// A term of office after another has controllers of the same names. controller-runtime's queues with priorities may hang at their end
		// (kubernetes-sigs/controller-runtime#3538, mended after 0.24.1): the lease was given back 30 s later then.
		Controller: ctrlconfig.Controller{SkipNameValidation: &again, UsePriorityQueue: &byPriority},
	}
}
