"""Work under a lock, step by step: ``python migrate.py`` in several terminals.

It asks the server that ``LEASEHOLD_ADDR`` names, or the one at 127.0.0.1:8080.
"""

from leasehold import Client, Fence, Held, LeaseLost

store = Fence()  # in the place of a database that compares fencing tokens


def main() -> None:
    with Client.from_env() as client:
        try:
            with client.lock("db/migrate", ttl=30, wait=10) as lease:
                for step in range(3):
                    lease.check()
                    store.accept(lease.fencing_token)
                    print(f"step {step} with token {lease.fencing_token}")
        except Held as held:
            print(f"{held.holders[0].owner_id} has it; {held.waiters} wait already")
        except LeaseLost as lost:
            print(f"stopped: {lost}")


if __name__ == "__main__":
    main()
