"""One leader of many, and those who follow: ``python leader.py`` in several terminals."""

import asyncio
import sys

from leasehold import AsyncClient, LeaseLost


async def follow(client: AsyncClient) -> None:
    async for leader in client.election("scheduler").observe():
        print("leads:", leader.value if leader else "nobody")


async def main(address: str, terms: int) -> None:
    async with AsyncClient.from_env() as client:
        following = asyncio.ensure_future(follow(client))
        for _ in range(terms):
            try:
                async with await client.election("scheduler", ttl=10).campaign(address) as leadership:
                    print(f"elected with token {leadership.fencing_token}")
                    await asyncio.sleep(0.2)
            except LeaseLost as lost:
                print(f"deposed: {lost}")
        following.cancel()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "10.0.0.7:9000", terms=2))
