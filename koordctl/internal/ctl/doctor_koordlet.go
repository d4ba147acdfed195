// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ctl

import (
	"slices"
	"strings"

	"github.com/koord-rt/koord-rt/daemon/status"
)

// checkOwnNode repeats what koordlet has found out by trying: whether the API server refuses it what is another node's. Nothing on this node
// could tell. Without an API server there is nothing to tell.
func (*env) checkOwnNode(s *status.Entry) []check {
	const name = "own-node"
	if s.Agent == nil {
		return nil
	}
	i := slices.IndexFunc(s.Agent.Sources, func(from status.Source) bool { return from.Name == name })
	if i < 0 {
		return nil
	}
	c := check{Name: name, Result: ok, Detail: "the API server refuses koordlet what is another node's"}
	switch found := s.Agent.Sources[i]; {
	case found.State == status.StateActive:
	case found.Reason == status.NotAskedYet:
		c.Result, c.Detail, c.Next = warn, found.Reason+": koordlet asks within ten seconds of its start", "look again in ten seconds"
	case strings.HasPrefix(found.Reason, status.NotKnown): // the policy may well be in force
		c.Result, c.Detail = warn, found.Reason
		c.Next = "the reason says what is missing: a way to the API server, a token of koordlet's node, the kind NodeResourceTopology or the right to create it; " +
			"koordlet asks again within an hour, and ten seconds after a restart"
	default:
		c.Result, c.Detail = warn, found.Reason
		c.Next = "apply packaging/manifests/policy-koordlet.yaml, have the admission plugin ValidatingAdmissionPolicy on (Kubernetes 1.30 and later), and give " +
			"koordlet a token of its node; Agents in docs/user/admission.md says what holds without"
	}
	return []check{c}
}
