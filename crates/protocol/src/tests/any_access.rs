//! Strategies for the frames about keys, users, roles, rights and tenants.

use proptest::{collection::vec, option, prelude::*};

use super::any_frame::text;
use crate::{
    Reply, Request,
    control::{
        AccessChanged, AccessEntry, AccessList, ChangeAccess, DecideRight, Grant, Holder,
        KeyRotation, ListAccess, NewKey, PrincipalName, Quotas, RightDecision, RoleRights,
        TenantQuotas, UserCertificates, UserPassword, change_access::Change,
    },
};

fn texts() -> impl Strategy<Value = Vec<String>> {
    vec(text(), 0..3)
}

fn holder() -> impl Strategy<Value = Holder> {
    (text(), texts(), texts()).prop_map(|(tenant, roles, rights)| Holder { tenant, roles, rights })
}

fn principal() -> impl Strategy<Value = PrincipalName> {
    (text(), text()).prop_map(|(key_id, user)| PrincipalName { key_id, user })
}

fn quotas() -> impl Strategy<Value = Quotas> {
    any::<(Option<u64>, Option<u64>, Option<u64>, Option<u64>, Option<u64>)>().prop_map(
        |(messages_per_second, bytes_per_second, topics, connections, stored_bytes)| Quotas {
            messages_per_second,
            bytes_per_second,
            topics,
            connections,
            stored_bytes,
        },
    )
}

fn quotas_of_tenant() -> impl Strategy<Value = TenantQuotas> {
    (text(), option::of(quotas())).prop_map(|(tenant, quotas)| TenantQuotas { tenant, quotas })
}

fn grant() -> impl Strategy<Value = Grant> {
    (option::of(principal()), texts(), texts()).prop_map(|(principal, roles, rights)| Grant {
        principal,
        roles,
        rights,
    })
}

pub fn access_request() -> impl Strategy<Value = Request> {
    let key = (text(), option::of(holder()), any::<Option<u64>>())
        .prop_map(|(name, holder, expires_ms)| NewKey { name, holder, expires_ms });
    let rotation =
        (text(), any::<u64>()).prop_map(|(key_id, grace_ms)| KeyRotation { key_id, grace_ms });
    let password = (text(), text(), option::of(holder()))
        .prop_map(|(user, password, holder)| UserPassword { user, password, holder });
    let certificates = (text(), texts(), option::of(holder()))
        .prop_map(|(user, certificates, holder)| UserCertificates { user, certificates, holder });
    let role = (text(), texts()).prop_map(|(role, rights)| RoleRights { role, rights });
    let change = prop_oneof![
        key.prop_map(Change::CreateKey),
        rotation.prop_map(Change::RotateKey),
        text().prop_map(Change::DeleteKey),
        password.prop_map(Change::SetPassword),
        certificates.prop_map(Change::SetCertificates),
        text().prop_map(Change::DeleteUser),
        role.prop_map(Change::SetRole),
        text().prop_map(Change::DeleteRole),
        quotas_of_tenant().prop_map(Change::CreateTenant),
        quotas_of_tenant().prop_map(Change::SetQuotas),
        text().prop_map(Change::DeleteTenant),
        grant().prop_map(Change::Grant),
        grant().prop_map(Change::Revoke),
    ];
    prop_oneof![
        option::of(change).prop_map(|change| Request::ChangeAccess(ChangeAccess { change })),
        (any::<i32>(), text(), any::<u32>()).prop_map(|(kind, page_token, page_size)| {
            Request::ListAccess(ListAccess { kind, page_token, page_size })
        }),
        (option::of(principal()), text(), text()).prop_map(|(principal, verb, name)| {
            Request::DecideRight(DecideRight { principal, verb, name })
        }),
    ]
}

pub fn access_reply() -> impl Strategy<Value = Reply> {
    let entry = (
        (text(), text()),
        option::of(holder()),
        any::<(u64, Option<u64>, u64, Option<u64>)>(),
        (option::of(quotas()), any::<Option<u64>>(), texts()),
    )
        .prop_map(|((id, name), holder, times, (quotas, stored_bytes, certificates))| {
            let (created_ms, expires_ms, generation, last_used_ms) = times;
            AccessEntry {
                quotas,
                stored_bytes,
                certificates,
                id,
                name,
                holder,
                created_ms,
                expires_ms,
                generation,
                last_used_ms,
            }
        });
    prop_oneof![
        (text(), text(), any::<bool>()).prop_map(|(id, key, created)| {
            Reply::AccessChanged(AccessChanged { id, key, created })
        }),
        (vec(entry, 0..3), text()).prop_map(|(entries, next_page_token)| {
            Reply::AccessList(AccessList { entries, next_page_token })
        }),
        (any::<bool>(), text()).prop_map(|(allowed, reason)| {
            Reply::RightDecision(RightDecision { allowed, reason })
        }),
    ]
}
