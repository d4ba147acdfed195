// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package quotaprofile keeps the root quota of every ElasticQuotaProfile as large as the nodes that the profile selects: upstream's controller
// quotaprofile, which looks every ten seconds; this one looks when something has changed.
//
// What the quota is stands in cluster/internal/rootquota; here are the watches and the writes. Inputs are profiles, nodes and quotas from the
// cache; outputs are the label tree-id of profiles that have none, and ElasticQuotas of scheduling.sigs.k8s.io, by server-side apply with
// force, for the quota is the profile's, and only where something would change. A quota outlives its profile: it may have children and pods. It
// must not import a webhook or another controller.
package quotaprofile
